"""Small helpers that MMSelfSup's users import."""

from __future__ import annotations

from typing import Any

from torch import nn

from etude.dialects.mmengine.live.model.wrappers import is_model_wrapper
from etude.dialects.openmm.registries import scope


def get_model(model: nn.Module) -> Any:
    """The model inside its wrapper, if it has one."""
    return model.module if is_model_wrapper(model) else model


def register_all_modules(init_default_scope: bool = True) -> None:
    """Make ``mmselfsup`` the default scope. Its parts need no registering: they are found by name."""
    if init_default_scope:
        scope.init_default_scope("mmselfsup")
