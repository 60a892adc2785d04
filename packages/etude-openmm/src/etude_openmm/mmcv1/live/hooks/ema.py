"""EMAHook of mmcv: keeps moving averages of the parameters as buffers of the model, and swaps them in after epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from etude_openmm.mmcv1.live.checks import require
from etude_openmm.mmcv1.live.hooks.hook import HOOKS, Hook
from etude_openmm.mmcv1.live.parallel import unwrap

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner
    from etude_openmm.mmcv1.live.runner.resuming import Restored


@HOOKS.register_module()
class EMAHook(Hook):
    """Computes ``average = (1 - m) average + m parameter`` every ``interval`` iterations; ``m`` grows in ``warm_up``.

    After a training epoch the parameters hold the averages (evaluation and later hooks see them) and the buffers hold
    the raw values; before the next epoch they are swapped back. So the weights in a checkpoint depend on whether this
    hook acts before the checkpoint hook (``priority='ABOVE_NORMAL'``: averages) or after it (raw).
    """

    #: The state of this hook belongs to the weights of a checkpoint, not to the end of its stage: it says whether the
    #: averages are swapped in.
    goes_with_weights = True

    def __init__(
        self, momentum: float = 0.0002, interval: int = 1, warm_up: int = 100, resume_from: str | None = None
    ) -> None:
        require(isinstance(interval, int) and interval > 0, f"interval must be a positive integer, got {interval!r}")
        require(0 < momentum < 1, f"momentum must lie in (0, 1), got {momentum}")
        self.warm_up, self.interval, self.checkpoint = warm_up, interval, resume_from
        self.momentum = momentum**interval  # as in mmcv, although a larger interval then averages more slowly
        self.regular_momentum = self.momentum
        self.param_ema_buffer: dict[str, str] = {}
        self.model_parameters: dict[str, Tensor] = {}
        self.model_buffers: dict[str, Any] = {}
        self._averages: list[Tensor] = []
        self._skip_swap = self._swapped = False

    def before_run(self, runner: BaseRunner) -> None:
        model = unwrap(runner.model)
        self.model_parameters = self.averaged(model)
        for name, value in self.model_parameters.items():
            buffer = f"ema_{name.replace('.', '_')}"
            self.param_ema_buffer[name] = buffer
            model.register_buffer(buffer, value.data.clone())
        self.model_buffers = dict(model.named_buffers(recurse=True))
        self._averages = [self.model_buffers[self.param_ema_buffer[name]] for name in self.model_parameters]
        # Only now: a resume before this point drops the averages, as their buffers do not exist yet.
        if self.checkpoint is not None:
            runner.resume(self.checkpoint)
        self._restore(runner.restored)

    def averaged(self, model: nn.Module) -> dict[str, Any]:
        """Return the tensors to average by name."""
        # As in mmcv, frozen parameters are averaged, too.
        return dict(model.named_parameters(recurse=True))

    def after_train_iter(self, runner: BaseRunner) -> None:
        now = runner.iter
        # Counted from 0, as in mmcv: the first iteration always counts.
        if now % self.interval != 0:
            return
        # mmcv's formula: warm_up=0 divides by zero in the first iteration, there as here.
        momentum = min(self.momentum, (1 + now) / (self.warm_up + now))
        self._average(momentum)

    def before_train_epoch(self, runner: BaseRunner) -> None:
        if not self._skip_swap:
            self._swap_ema_parameters()
        self._skip_swap = self._swapped = False

    def after_train_epoch(self, runner: BaseRunner) -> None:
        self._swap_ema_parameters()
        self._skip_swap, self._swapped = False, True

    def state_dict(self) -> dict[str, bool]:
        """Return whether the parameters hold the averages now; the averages themselves are buffers of the model."""
        return {"swapped": self._swapped}

    def load_state_dict(self, state: Mapping[str, bool]) -> None:
        """Let the next epoch swap only if the parameters hold the averages."""
        self._skip_swap = not state["swapped"]

    def catch_up(self, stage: str) -> None:
        """Swap the averages in after a resume: the weights were saved before this hook acted at ``stage``."""
        if stage == "after_train_epoch":
            self._swap_ema_parameters()
            self._skip_swap, self._swapped = False, True

    def _restore(self, restored: Restored | None) -> None:
        """Copy the averages of the resumed checkpoint into the buffers, which did not exist when it was loaded."""
        for buffer in self.param_ema_buffer.values():
            if restored is not None and buffer in restored.averages:
                self.model_buffers[buffer].copy_(restored.averages[buffer])

    @torch.no_grad()
    def _average(self, momentum: float) -> None:
        pairs = zip(self._averages, self.model_parameters.values(), strict=True)
        moving = [(average, value.detach()) for average, value in pairs if value.is_floating_point()]
        averages = [average for average, _ in moving]
        # Two operations, as in mmcv: lerp would round differently.
        torch._foreach_mul_(averages, 1 - momentum)
        torch._foreach_add_(averages, [value for _, value in moving], alpha=momentum)

    @torch.no_grad()
    def _swap_ema_parameters(self) -> None:
        for param, average in zip(self.model_parameters.values(), self._averages, strict=True):
            held = param.data.clone()
            param.data.copy_(average.data)
            average.data.copy_(held)
