"""EMAHook: keeps an averaged copy of the weights, validates with it and saves it."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from etude_openmm.mmengine.live.hooks.hook import DataBatch, Hook
from etude_openmm.mmengine.live.model.averaged import BaseAveragedModel, follow, swap
from etude_openmm.shared.live.checkpoint import DEFAULT_REVISE, load_state_dict
from etude_openmm.shared.live.loader import revised, state_of
from etude_openmm.shared.logging import log_warning
from etude_openmm.shared.registries.root import MODELS
from etude_openmm.shared.state import unwrapped


class EMAHook(Hook):
    """Averages the weights after each iteration from ``begin_iter`` or ``begin_epoch`` on; before, it copies them.

    Validation and testing see the averaged weights. In a checkpoint ``state_dict`` holds the averaged weights, ready
    for use, and ``ema_state_dict`` the weights that training continues with.
    """

    priority = "NORMAL"

    def __init__(
        self,
        ema_type: str = "ExponentialMovingAverage",
        strict_load: bool = False,
        begin_iter: int = 0,
        begin_epoch: int = 0,
        **kwargs: Any,
    ) -> None:
        self.strict_load = strict_load
        self.ema_cfg = {"type": ema_type, **kwargs}
        assert not (begin_iter != 0 and begin_epoch != 0), "`begin_iter` and `begin_epoch` should not be both set"
        assert begin_iter >= 0, f"`begin_iter` must larger than or equal to 0, but got begin_iter: {begin_iter}"
        assert begin_epoch >= 0, f"`begin_epoch` must larger than or equal to 0, but got begin_epoch: {begin_epoch}"
        self.begin_iter, self.begin_epoch = begin_iter, begin_epoch
        self.enabled_by_epoch = begin_epoch > 0
        self.ema_model: BaseAveragedModel | None = None
        self._swapped = False

    def before_run(self, runner: Any) -> None:
        source: nn.Module = unwrapped(runner.model)
        if getattr(self, "src_model", None) is source:
            return  # a test after training measures the average that was trained
        self.src_model = source
        self.ema_model = MODELS.build(self.ema_cfg, default_args={"model": self.src_model})

    def before_train(self, runner: Any) -> None:
        if self.enabled_by_epoch:
            assert self.begin_epoch <= runner.max_epochs, (
                f"self.begin_epoch should be smaller than or equal to runner.max_epochs, {runner.max_epochs}, but is "
                f"{self.begin_epoch}"
            )
        else:
            assert self.begin_iter <= runner.max_iters, (
                f"self.begin_iter should be smaller than or equal to runner.max_iters, {runner.max_iters}, but is "
                f"{self.begin_iter}"
            )

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        # Until then the average is a copy, so that it begins with the weights of that moment.
        if self._ema_started(runner):
            self._average.update_parameters(self.src_model)
        else:
            follow(self._average, self.src_model)

    def before_val_epoch(self, runner: Any) -> None:
        self._swap_ema_parameters()

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        self._swap_ema_parameters()

    def before_test_epoch(self, runner: Any) -> None:
        self._swap_ema_parameters()

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        self._swap_ema_parameters()

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["ema_state_dict"] = self._average.state_dict()
        self._swap_ema_state_dict(checkpoint)

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        if self.ema_model is None:  # a script may load before it trains
            self.before_run(runner)
        if "ema_state_dict" in checkpoint and runner._resume:
            self._swap_ema_state_dict(checkpoint)
            self._average.load_state_dict(checkpoint["ema_state_dict"], strict=self.strict_load)
            return
        if runner._resume:
            log_warning("the checkpoint has no ema_state_dict: the average starts as a copy of its state_dict")
        # Any file of weights will do: also a bare state, or one with the prefix of a wrapper.
        state = revised(copy.copy(state_of(checkpoint, "")), DEFAULT_REVISE)
        load_state_dict(self._average.module, state, strict=self.strict_load)

    @property
    def _average(self) -> BaseAveragedModel:
        assert self.ema_model is not None, "EMAHook acts before its before_run"
        return self.ema_model

    def cut_evaluation(self, runner: Any) -> None:
        """Give the model its own weights back after an evaluation that was cut off."""
        if self._swapped:
            self._swap_ema_parameters()

    def _swap_ema_parameters(self) -> None:
        swap(self._average, self.src_model)
        self._swapped = not self._swapped

    def _swap_ema_state_dict(self, checkpoint: dict[str, Any]) -> None:
        model_state, ema_state = checkpoint["state_dict"], checkpoint["ema_state_dict"]
        for key in list(ema_state):
            name = key.removeprefix("module.")
            if name != key and name in model_state:
                ema_state[key], model_state[name] = model_state[name], ema_state[key]

    def _ema_started(self, runner: Any) -> bool:
        # As in MMEngine, numbers count from 1: the average begins in the iteration or epoch of that number.
        if self.enabled_by_epoch:
            return bool(runner.epoch + 1 >= self.begin_epoch)
        return bool(runner.iter + 1 >= self.begin_iter)
