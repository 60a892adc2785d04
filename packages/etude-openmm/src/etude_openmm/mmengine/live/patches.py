"""Changes modules of the installed mmengine, where today's torch breaks them or Étude promises more."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from etude_openmm.mmengine.live import user_errors


def name_the_transform(module: ModuleType) -> None:
    """Let the error of a dataset without a single sample name the transform that returned None."""
    original = module.BaseDataset.__getitem__

    @functools.wraps(original)
    def getitem(self: Any, idx: int) -> Any:
        try:
            return original(self, idx)
        except Exception as error:
            if type(error) is Exception:  # what mmengine raises, and hardly any other code
                user_errors.of_pipeline(error, self, idx)
            raise

    module.BaseDataset.__getitem__ = getitem
