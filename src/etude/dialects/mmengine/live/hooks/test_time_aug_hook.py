"""Test-time augmentation by config."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from etude.dialects.mmengine.live.hooks.hook import Hook
from etude.dialects.mmengine.live.model.wrappers import is_model_wrapper
from etude.dialects.mmengine.live.registry import MODELS, RUNNERS


class PrepareTTAHook(Hook):
    """Puts the runner's model inside the model that ``tta_cfg`` describes when testing begins."""

    priority = "NORMAL"

    def __init__(self, tta_cfg: dict[str, Any]) -> None:
        self.tta_cfg = tta_cfg

    def before_test(self, runner: Any) -> None:
        model: nn.Module = runner.model
        inner = model.module if is_model_wrapper(model) else model
        runner.model = MODELS.build(self.tta_cfg, default_args={"module": inner}).to(next(model.parameters()).device)


def build_runner_with_tta(cfg: Any) -> Any:
    """A runner whose test data go through ``cfg.tta_pipeline`` and whose model is wrapped by ``cfg.tta_model``."""
    for key in ("tta_model", "tta_pipeline"):
        assert key in cfg, f"please make sure {key} is defined in your config."
    cfg = copy.deepcopy(cfg)
    dataset = cfg["test_dataloader"]["dataset"]
    while "dataset" in dataset:
        dataset = dataset["dataset"]
    dataset["pipeline"] = cfg["tta_pipeline"]
    runner = RUNNERS.build(cfg)
    runner.register_hook(PrepareTTAHook(tta_cfg=cfg["tta_model"]))
    return runner
