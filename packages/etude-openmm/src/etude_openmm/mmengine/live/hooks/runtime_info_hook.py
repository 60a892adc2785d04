"""RuntimeInfoHook: writes counters, learning rates and losses into the message hub."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from etude_openmm.mmengine.live.hooks.hook import DataBatch, Hook
from etude_openmm.mmengine.names import VERSION
from etude_openmm.shared.config.config_base import pretty_public


class RuntimeInfoHook(Hook):
    """Writes scalars (``train/lr``, ``train/<loss>``, ``val/<metric>``) and infos (``epoch``, ``max_iters`` …)."""

    priority = "VERY_HIGH"
    last_loop_stage: str | None = None

    def before_run(self, runner: Any) -> None:
        runner.message_hub.update_info_dict(
            {
                "cfg": pretty_public(runner.cfg),
                "seed": runner.seed,
                "experiment_name": runner.experiment_name,
                "mmengine_version": VERSION,
            }
        )

    def before_train(self, runner: Any) -> None:
        hub = runner.message_hub
        hub.update_info("loop_stage", "train")
        hub.update_info("epoch", runner.epoch)
        hub.update_info("iter", runner.iter)
        hub.update_info("max_epochs", runner.max_epochs)
        hub.update_info("max_iters", runner.max_iters)
        dataset: Any = getattr(runner.train_dataloader, "dataset", None)
        if hasattr(dataset, "metainfo"):
            hub.update_info("dataset_meta", dataset.metainfo)

    def after_train(self, runner: Any) -> None:
        runner.message_hub.pop_info("loop_stage")

    def before_train_epoch(self, runner: Any) -> None:
        runner.message_hub.update_info("epoch", runner.epoch)

    def before_train_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None) -> None:
        hub = runner.message_hub
        hub.update_info("iter", runner.iter)
        rates = runner.optim_wrapper.get_lr()
        assert isinstance(rates, dict), "`runner.optim_wrapper.get_lr()` should return a dict of learning rates by name"
        for name, values in rates.items():
            hub.update_scalar(f"train/{name}", values[0])

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        if outputs is not None:
            hub = runner.message_hub
            for name, value in outputs.items():
                # A differentiable result of this step is not modified in place later: no copy is needed.
                if isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf and value.numel() == 1:
                    hub.buffer(f"train/{name}").append(value.detach())
                else:
                    hub.update_scalar(f"train/{name}", value)

    def before_val(self, runner: Any) -> None:
        self.last_loop_stage = runner.message_hub.get_info("loop_stage")
        runner.message_hub.update_info("loop_stage", "val")

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        _record(runner.message_hub, "val", metrics)

    def after_val(self, runner: Any) -> None:
        # Without a train loop around the validation, there is no stage to return to.
        if self.last_loop_stage == "train":
            runner.message_hub.update_info("loop_stage", self.last_loop_stage)
            self.last_loop_stage = None
        else:
            runner.message_hub.pop_info("loop_stage")

    def before_test(self, runner: Any) -> None:
        runner.message_hub.update_info("loop_stage", "test")

    def after_test(self, runner: Any) -> None:
        runner.message_hub.pop_info("loop_stage")

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        _record(runner.message_hub, "test", metrics)


def _record(hub: Any, mode: str, metrics: dict[str, Any] | None) -> None:
    for name, value in (metrics or {}).items():
        if _is_scalar(value):
            hub.update_scalar(f"{mode}/{name}", value)
        else:
            hub.update_info(f"{mode}/{name}", value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.size == 1)
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float | np.number)
