"""Optimizer hooks of mmcv: backward, gradient clipping and step; with gradient accumulation and in half precision."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from etude_openmm.mmcv1.live.checks import MissingOutput, require
from etude_openmm.mmcv1.live.hooks.hook import HOOKS, Hook
from etude_openmm.mmcv1.live.utils.fp16 import wrap_fp16_model
from etude_openmm.shared.torch_utils import has_batch_norm, parameters_behind

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner


def loss_of(runner: BaseRunner) -> Any:
    """Return the loss of the model's step. Raises an error if there is none."""
    try:
        return runner.outputs["loss"]
    except KeyError:
        given = ", ".join(map(str, runner.outputs))
        raise MissingOutput(
            f"train_step of {runner.model_name} returned no 'loss' to minimise, only: {given}"
        ) from None


@HOOKS.register_module()
class OptimizerHook(Hook):
    """Calls ``zero_grad``, ``backward``, clips and steps. Later hooks can still read the gradients."""

    def __init__(self, grad_clip: dict[str, Any] | None = None, detect_anomalous_params: bool = False) -> None:
        self.grad_clip = grad_clip
        self.detect_anomalous_params = detect_anomalous_params
        self._listed: list[Tensor] = []
        self._listed_at: tuple[int, int] | None = None

    def clip_grads(self, params: Iterable[Tensor]) -> Tensor | None:
        """Clip the gradients and return their norm before clipping, or None if there are none."""
        trained = [param for param in params if param.requires_grad]
        if all(param.grad is None for param in trained):
            return None
        return clip_grad_norm_(trained, **(self.grad_clip or {}))

    def after_train_iter(self, runner: BaseRunner) -> None:
        # First, not after the step: later hooks can read the gradients until the next iteration.
        runner.optimizer.zero_grad()
        if self.detect_anomalous_params:
            self.detect_anomalous_parameters(loss_of(runner), runner)
        loss_of(runner).backward()
        self.clip_and_log(runner)
        runner.optimizer.step()

    def clip_and_log(self, runner: BaseRunner) -> None:
        """Clip by ``grad_clip`` and log the norm, which stays a tensor until a line is written."""
        if self.grad_clip is not None:
            norm = self.clip_grads(self._parameters(runner))
            if norm is not None:
                runner.engine.norm = norm.detach()
                runner.log_buffer.update({"grad_norm": norm}, runner.outputs["num_samples"])

    def _parameters(self, runner: BaseRunner) -> list[Tensor]:
        """Return the model's parameters, listed once per epoch."""
        now = (id(runner.model), runner.epoch)
        if self._listed_at != now:
            self._listed, self._listed_at = list(runner.model.parameters()), now
        return self._listed

    def detect_anomalous_parameters(self, loss: Tensor, runner: BaseRunner) -> None:
        """Log every trainable parameter that the loss does not depend on."""
        reached = parameters_behind(loss)
        for name, param in runner.model.named_parameters():
            if param.requires_grad and id(param) not in reached:
                runner.logger.log(
                    level=logging.ERROR, msg=f"{name} with shape {param.size()} is not in the computational graph \n"
                )


@HOOKS.register_module()
class GradientCumulativeOptimizerHook(OptimizerHook):
    """Accumulates gradients of ``cumulative_iters`` iterations for one update. The last group of a run may be smaller.

    Iterations count over the whole run, across epochs. Checkpoints contain gradients that wait for their update.
    """

    goes_with_weights = True

    def __init__(self, cumulative_iters: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require(
            isinstance(cumulative_iters, int) and cumulative_iters > 0,
            f"cumulative_iters must be a positive integer, got {cumulative_iters!r}",
        )
        self.cumulative_iters = cumulative_iters
        self.divisible_iters = 0
        self.remainder_iters = 0
        self.initialized = False
        self._waiting: dict[str, Tensor] | None = None

    def has_batch_norm(self, module: nn.Module) -> bool:
        return has_batch_norm(module)

    def after_train_iter(self, runner: BaseRunner) -> None:
        self._prepare(runner)
        loss = loss_of(runner) / self._get_loss_factor(runner)
        loss.backward()
        if self._is_due(runner):
            self.clip_and_log(runner)
            runner.optimizer.step()
            runner.optimizer.zero_grad()

    def _prepare(self, runner: BaseRunner) -> None:
        if not self.initialized:
            self._init(runner)
        params = self._parameters(runner)
        if self._waiting is not None:
            for number, grad in self._waiting.items():
                params[int(number)].grad = grad.to(params[int(number)].device).clone()
            self._waiting = None

    def state_dict(self) -> dict[str, Any]:
        """Return the gradients of an incomplete group."""
        return {"grads": {str(i): param.grad for i, param in enumerate(self._listed) if param.grad is not None}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Store gradients that the parameters get back before the next iteration adds to them."""
        self._waiting = dict(state["grads"])

    def _is_due(self, runner: BaseRunner) -> bool:
        return self.every_n_iters(runner, self.cumulative_iters) or self.is_last_iter(runner)

    def _init(self, runner: BaseRunner) -> None:
        if runner.iter % self.cumulative_iters != 0 and self._waiting is None:
            runner.logger.warning(
                "Resume iter number is not divisible by cumulative_iters in GradientCumulativeOptimizerHook, "
                "which means the gradient of some iters is lost and the result may be influenced slightly."
            )
        if self.has_batch_norm(runner.model) and self.cumulative_iters > 1:
            runner.logger.warning(
                "GradientCumulativeOptimizerHook may slightly decrease performance if the model has BatchNorm layers."
            )
        assert runner.max_iters is not None
        self.divisible_iters = runner.max_iters // self.cumulative_iters * self.cumulative_iters
        self.remainder_iters = runner.max_iters - self.divisible_iters
        self.initialized = True

    def _get_loss_factor(self, runner: BaseRunner) -> int:
        """Return the number of iterations in this iteration's group."""
        # Counted over the whole run: a group may begin in one epoch and end in the next.
        if runner.iter < self.divisible_iters:
            return self.cumulative_iters
        runner.logger.warning(
            f"Loss will be divided by {self.remainder_iters} in the last {self.remainder_iters} iterations because "
            f"they are not enough for {self.cumulative_iters} cumulative_iters."
        )
        return self.remainder_iters


@HOOKS.register_module()
class Fp16OptimizerHook(OptimizerHook):
    """Trains in half precision with scaled losses. Without CUDA the scaler is off. ``meta['fp16']`` holds its state."""

    def __init__(
        self,
        grad_clip: dict[str, Any] | None = None,
        coalesce: bool = True,
        bucket_size_mb: int = -1,
        loss_scale: float | str | dict[str, Any] = 512.0,
        distributed: bool = True,
    ) -> None:
        super().__init__(grad_clip)
        self.coalesce, self.bucket_size_mb, self.distributed = coalesce, bucket_size_mb, distributed
        self._scale_update_param: float | None = None  # a fixed scale, set again after each step so that it stays
        options: dict[str, Any] = {}
        if loss_scale == "dynamic":
            pass
        elif isinstance(loss_scale, float):
            self._scale_update_param = loss_scale
            options = {"init_scale": loss_scale}
        elif isinstance(loss_scale, dict):
            options = loss_scale
        else:
            raise ValueError(f'loss_scale must be a float (512., not 512), a dict or "dynamic", got {loss_scale!r}')
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.loss_scaler = torch.amp.GradScaler(device, enabled=device == "cuda", **options)

    def before_run(self, runner: BaseRunner) -> None:
        if self.loss_scaler.is_enabled():
            wrap_fp16_model(runner.model)
        else:
            runner.logger.warning(
                f"{type(self).__name__}: half precision needs CUDA, which is not available here: this run trains in "
                "single precision and its losses are not scaled"
            )
        if "fp16" in runner.known_meta and "loss_scaler" in runner.known_meta["fp16"]:
            state = runner.known_meta["fp16"]["loss_scaler"]
            if state and self.loss_scaler.is_enabled():
                self.loss_scaler.load_state_dict(state)

    def after_train_iter(self, runner: BaseRunner) -> None:
        # Both, as in mmcv: the optimizer need not have all parameters of the model.
        runner.model.zero_grad()
        runner.optimizer.zero_grad()
        self.loss_scaler.scale(loss_of(runner)).backward()
        self._scaled_step(runner)

    def _scaled_step(self, runner: BaseRunner) -> None:
        self.loss_scaler.unscale_(runner.optimizer)
        self.clip_and_log(runner)
        self.loss_scaler.step(runner.optimizer)
        self.loss_scaler.update(self._scale_update_param)
        runner.known_meta.setdefault("fp16", {})["loss_scaler"] = self.loss_scaler.state_dict()


@HOOKS.register_module()
class GradientCumulativeFp16OptimizerHook(GradientCumulativeOptimizerHook, Fp16OptimizerHook):
    """Accumulates gradients in half precision."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def after_train_iter(self, runner: BaseRunner) -> None:
        self._prepare(runner)
        loss = loss_of(runner) / self._get_loss_factor(runner)
        self.loss_scaler.scale(loss).backward()
        if self._is_due(runner):
            self._scaled_step(runner)
            runner.model.zero_grad()
            runner.optimizer.zero_grad()
