"""LiBai's schedulers: functions that return a torch scheduler with a curve of :mod:`etude_libai.curves`."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any

import torch

from etude_libai import curves
from etude_libai.lazy.instantiate import instantiate

logger = logging.getLogger("libai.scheduler.lr_scheduler")


class CurveLR(torch.optim.lr_scheduler.LRScheduler):
    """A scheduler whose learning rate is a function of the base lr and the step."""

    def __init__(self, optimizer: Any, curve: curves.Curve, last_step: int = -1) -> None:
        self.curve = curve
        super().__init__(optimizer, last_step)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [self.curve(float(base), self.last_epoch) for base in self.base_lrs]

    def step(self, epoch: int | None = None) -> None:
        """Increase the step by one. With gradient accumulation this happens in every micro-step."""
        self._step_count += 1
        self.last_epoch += 1
        self._last_lr = self.get_lr()
        for group, lr in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = lr

    def state_dict(self) -> dict[str, Any]:
        """Return only numbers; the curve comes from the config."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs), "_step_count": self._step_count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        # OneFlow calls it ``last_step``.
        self.last_epoch = int(state_dict.get("last_epoch", state_dict.get("last_step", 0)))
        self.base_lrs = list(state_dict.get("base_lrs", self.base_lrs))
        self._step_count = int(state_dict.get("_step_count", self.last_epoch + 1))
        self._last_lr = [self.curve(float(base), self.last_epoch) for base in self.base_lrs]


def build_lr_scheduler(cfg: Any, optimizer: Any) -> Any:
    """Return the scheduler that ``cfg`` (a lazy call) describes, for ``optimizer``."""
    cfg.optimizer = optimizer
    return instantiate(cfg)


def WarmupCosineLR(
    optimizer: Any,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    alpha: float = 0.0,
    warmup_method: str = "linear",
) -> CurveLR:
    """Return half a cosine down to ``alpha`` times the base lr."""
    _require_positive(max_iter, "decay_steps must greater than zero, but got")
    main = curves.cosine(max_iter, alpha)
    return _scheduler(optimizer, main, warmup_factor, warmup_iter, warmup_method)


def WarmupCosineAnnealingLR(
    optimizer: Any,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    eta_min: float = 0.0,
    warmup_method: str = "linear",
) -> CurveLR:
    """Return a cosine between the base lr and ``eta_min``, which comes back up beyond ``max_iter``."""
    _require_positive(max_iter, "T_max must greater than zero, but got")
    main = curves.cosine_annealing(max_iter, eta_min)
    return _scheduler(optimizer, main, warmup_factor, warmup_iter, warmup_method)


def WarmupStepLR(
    optimizer: Any,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    step_size: int,
    gamma: float = 0.1,
    warmup_method: str = "linear",
) -> CurveLR:
    """Return a decay by ``gamma`` every ``step_size`` steps. ``max_iter`` is not used."""
    _require_positive(step_size, "step_size must greater than zero, but got")
    _require_positive(gamma, "gamma must greater than zero, but got")
    return _scheduler(optimizer, curves.step_decay(step_size, gamma), warmup_factor, warmup_iter, warmup_method)


def WarmupMultiStepLR(
    optimizer: Any,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    milestones: Sequence[int],
    gamma: float = 0.1,
    warmup_method: str = "linear",
) -> CurveLR:
    """Return a decay by ``gamma`` at every milestone. ``max_iter`` is not used."""
    listed = list(milestones)
    assert all(earlier < later for earlier, later in itertools.pairwise(listed)), (
        f"values in `list` milestone must be increasing, but got {listed}"
    )
    _require_positive(gamma, "gamma must greater than zero, but got")
    return _scheduler(optimizer, curves.multi_step(listed, gamma), warmup_factor, warmup_iter, warmup_method)


def WarmupExponentialLR(
    optimizer: Any, max_iter: int, gamma: float, warmup_factor: float, warmup_iter: int, warmup_method: str = "linear"
) -> CurveLR:
    """Return a decay by ``gamma`` every step. ``max_iter`` is not used."""
    if gamma <= 0:
        raise ValueError(f"gamma must greater than zero, but got {gamma}")
    return _scheduler(optimizer, curves.exponential(gamma), warmup_factor, warmup_iter, warmup_method)


def WarmupPolynomialLR(
    optimizer: Any,
    max_iter: int,
    warmup_factor: float,
    warmup_iter: int,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
    warmup_method: str = "linear",
) -> CurveLR:
    """Return a polynomial decay from the base lr to ``end_learning_rate``."""
    _require_positive(max_iter, "decay_batch must greater than zero, but got")
    _require_positive(power, "power must greater than zero, but got")
    main = curves.polynomial(max_iter, end_learning_rate, power, cycle)
    return _scheduler(optimizer, main, warmup_factor, warmup_iter, warmup_method)


def _require_positive(value: float, message: str) -> None:
    assert value > 0, f"{message} {value}"


def _scheduler(optimizer: Any, main: curves.Curve, factor: float, length: int, method: str) -> CurveLR:
    if length == 0:
        logger.warning("warmup iters equals to zero, return the main scheduler")
        return CurveLR(optimizer, main)
    if method not in ("linear", "constant"):
        raise ValueError(f"warmup_method should in ['linear', 'constant'], but got {method}")
    if length > 0:
        _check_warmup(optimizer, main, factor, length, method)
    return CurveLR(optimizer, curves.warmed(main, factor=factor, length=length, method=method))


def _check_warmup(optimizer: Any, main: curves.Curve, factor: float, length: int, method: str) -> None:
    between = "multiplicative factor expected to be between 0 and 1."
    if method == "constant":
        if not 0 <= factor <= 1:
            raise ValueError(f"Constant {between}")
        return
    bases = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]
    if any(base != bases[0] for base in bases):
        raise ValueError(
            "The param_groups in optimizer have different warmup configs, please use different optimizers."
        )
    if not 0 <= factor <= 1:
        raise ValueError(f"Starting {between}")
    if not 0 <= main(bases[0], length) / bases[0] <= 1:
        raise ValueError(f"Ending {between}")
