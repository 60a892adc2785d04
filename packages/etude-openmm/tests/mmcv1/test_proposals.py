"""Which result is proposed for a ``save_best`` that is none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch.utils.data import DataLoader, TensorDataset

from etude.errors import ConfigError
from etude_openmm.mmcv1.live.hooks.evaluation import EvalHook


class Data(TensorDataset):
    def evaluate(self, results: Any, **kwargs: Any) -> dict[str, float]:
        return {"accuracy_top-1": 0.5, "accuracy_top-5": 0.9}


def test_the_first_result_that_begins_so_is_proposed() -> None:
    hook = EvalHook(DataLoader(Data()), save_best="accuracy")
    runner: Any = SimpleNamespace(
        logger=None, log_buffer=SimpleNamespace(output={}, ready=False), meta={}, engine=SimpleNamespace(plan=None)
    )
    with pytest.raises(ConfigError, match="did you mean 'accuracy_top-1'"):
        hook.evaluate(runner, [])
