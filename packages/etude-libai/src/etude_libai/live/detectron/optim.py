"""detectron2's parameter groups and gradient clipping, and optimizers and schedulers from yacs configs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import torch
from torch import nn

from etude_libai.lazy.extra import fvcore
from etude_libai.lazy.reading.errors import near
from etude_libai.lazy.yacs_places import about
from etude_libai.live.detectron.schedule import LRMultiplier
from etude_libai.live.optim.build import (
    NORMS,
    Groups,
    expand_param_groups,
    grouped,
    reduce_param_groups,
    with_bias_override,
)

_curves = fvcore("common.param_scheduler", "a schedule of detectron2")
__all__ = ["expand_param_groups", "reduce_param_groups"]

_NORMS = (*NORMS, nn.SyncBatchNorm, nn.LocalResponseNorm)


#: Clips the gradients of one parameter, or of several, in place.
Clipper = Callable[[Any], Any]

logger = logging.getLogger("detectron2.solver.build")


class GradientClipType(Enum):
    VALUE = "value"
    NORM = "norm"


def get_default_optimizer_params(
    model: nn.Module,
    base_lr: float | None = None,
    weight_decay: float | None = None,
    weight_decay_norm: float | None = None,
    bias_lr_factor: float | None = 1.0,
    weight_decay_bias: float | None = None,
    lr_factor_func: Callable[[str], float] | None = None,
    overrides: Mapping[str, Mapping[str, Any]] | None = None,
) -> Groups:
    """Return groups with rules for norm layers and biases. ``lr_factor_func`` gets ``module.parameter`` names."""
    bias: dict[str, Any] = {"lr": None, "weight_decay": weight_decay_bias}
    if bias_lr_factor is not None and bias_lr_factor != 1.0:
        if base_lr is None:
            raise ValueError("bias_lr_factor requires base_lr")
        bias["lr"] = base_lr * bias_lr_factor
    overrides = with_bias_override(overrides, bias)
    if lr_factor_func is not None and base_lr is None:
        raise ValueError("lr_factor_func requires base_lr")
    return grouped(model, _NORMS, base_lr, weight_decay, weight_decay_norm, overrides, lr_factor_func=lr_factor_func)


def maybe_add_gradient_clipping(cfg: Any, optimizer: Any) -> Any:
    """Return the optimizer (or its class); with ``SOLVER.CLIP_GRADIENTS`` it clips before every step."""
    clip = cfg.SOLVER.CLIP_GRADIENTS
    if not clip.ENABLED:
        return optimizer
    kind = optimizer if isinstance(optimizer, type) else type(optimizer)
    wrapped = _generate_optimizer_class_with_gradient_clipping(kind, per_param_clipper=_create_gradient_clipper(clip))
    if isinstance(optimizer, type):
        return wrapped
    # Schedulers and checkpoints of the script may refer to this object already, so its class is changed.
    optimizer.__class__ = wrapped
    return optimizer


def _create_gradient_clipper(cfg: Any) -> Clipper:
    """Return a function that clips gradients as ``SOLVER.CLIP_GRADIENTS`` says."""
    with about("SOLVER.CLIP_GRADIENTS.CLIP_TYPE", hint=near(cfg.CLIP_TYPE, [kind.value for kind in GradientClipType])):
        kind, limit, norm = GradientClipType(cfg.CLIP_TYPE), cfg.CLIP_VALUE, cfg.NORM_TYPE
    if kind is GradientClipType.VALUE:
        return lambda parameters: nn.utils.clip_grad_value_(parameters, limit)
    return lambda parameters: nn.utils.clip_grad_norm_(parameters, limit, norm)


def _generate_optimizer_class_with_gradient_clipping(
    optimizer: type[Any], *, per_param_clipper: Clipper | None = None, global_clipper: Clipper | None = None
) -> type[Any]:
    """Return a subclass of the optimizer that clips before every step: parameter by parameter, or all at once."""
    assert per_param_clipper is None or global_clipper is None, (
        "Not allowed to use both per-parameter clipping and global clipping"
    )

    def step(self: Any, closure: Any = None) -> Any:
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        if per_param_clipper is not None:
            for parameter in parameters:
                per_param_clipper(parameter)
        elif global_clipper is not None:
            global_clipper(parameters)
        return optimizer.step(self, closure)

    return type(f"{optimizer.__name__}WithGradientClip", (optimizer,), {"step": step})


def build_optimizer(cfg: Any, model: nn.Module) -> torch.optim.Optimizer:
    """Build SGD as ``cfg.SOLVER`` says."""
    solver = cfg.SOLVER
    groups = get_default_optimizer_params(
        model,
        base_lr=solver.BASE_LR,
        weight_decay_norm=solver.WEIGHT_DECAY_NORM,
        bias_lr_factor=solver.BIAS_LR_FACTOR,
        weight_decay_bias=solver.WEIGHT_DECAY_BIAS,
    )
    made: torch.optim.Optimizer = maybe_add_gradient_clipping(cfg, torch.optim.SGD)(
        groups,
        lr=solver.BASE_LR,
        momentum=solver.MOMENTUM,
        nesterov=solver.NESTEROV,
        weight_decay=solver.WEIGHT_DECAY,
    )
    return made


class WarmupParamScheduler(_curves.CompositeParamScheduler):  # type: ignore[name-defined,misc]
    """Adds a warm-up to any scheduler. ``warmup_length`` is a share of training."""

    def __init__(
        self,
        scheduler: Any,
        warmup_factor: float,
        warmup_length: float,
        warmup_method: str = "linear",
        rescale_interval: bool = False,
    ) -> None:
        if not 0 <= warmup_length <= 1:
            raise ValueError(f"warmup_length is a share of training, at most 1, not {warmup_length}")
        end_value = scheduler(0.0) if rescale_interval else scheduler(warmup_length)
        start_value = warmup_factor * scheduler(0.0)
        if warmup_method == "constant":
            warmup = _curves.ConstantParamScheduler(start_value)
        elif warmup_method == "linear":
            warmup = _curves.LinearParamScheduler(start_value, end_value)
        else:
            raise ValueError(f"Unknown warmup method: {warmup_method}")
        super().__init__(
            [warmup, scheduler],
            interval_scaling=["rescaled", "rescaled" if rescale_interval else "fixed"],
            lengths=[warmup_length, 1 - warmup_length],
        )


_METHODS = ("linear", "constant")
_SCHEDULERS = ("WarmupMultiStepLR", "WarmupCosineLR", "WarmupStepWithFixedGammaLR")


def build_lr_scheduler(cfg: Any, optimizer: torch.optim.Optimizer) -> LRMultiplier:
    """Build the scheduler of ``cfg.SOLVER``: multi-step, cosine or fixed steps, with warm-up."""
    solver = cfg.SOLVER
    name = solver.LR_SCHEDULER_NAME
    if solver.MAX_ITER == 0:
        with about("SOLVER.MAX_ITER 0"):
            raise ZeroDivisionError("nothing says how long to train")
    main: Any
    if name == "WarmupMultiStepLR":
        steps = [step for step in solver.STEPS if step <= solver.MAX_ITER]
        if len(steps) != len(solver.STEPS):
            logger.warning("SOLVER.STEPS contains values larger than SOLVER.MAX_ITER. These values will be ignored.")
        with about(f"SOLVER.STEPS {tuple(solver.STEPS)}, SOLVER.MAX_ITER {solver.MAX_ITER}"):
            main = _curves.MultiStepParamScheduler(
                values=[solver.GAMMA**k for k in range(len(steps) + 1)], milestones=steps, num_updates=solver.MAX_ITER
            )
    elif name == "WarmupCosineLR":
        end = solver.BASE_LR_END / solver.BASE_LR
        with about(f"SOLVER.BASE_LR_END {solver.BASE_LR_END}, SOLVER.BASE_LR {solver.BASE_LR}"):
            assert 0.0 <= end <= 1.0, end
        main = _curves.CosineParamScheduler(1, end)
    elif name == "WarmupStepWithFixedGammaLR":
        main = _curves.StepWithFixedGammaParamScheduler(
            base_value=1.0, gamma=solver.GAMMA, num_decays=solver.NUM_DECAYS, num_updates=solver.MAX_ITER
        )
    else:
        with about("SOLVER.LR_SCHEDULER_NAME", hint=near(name, _SCHEDULERS)):
            raise ValueError(f"Unknown LR scheduler: {name}")
    method, share = solver.WARMUP_METHOD, min(solver.WARMUP_ITERS / solver.MAX_ITER, 1.0)
    with about(
        f"SOLVER.WARMUP_ITERS {solver.WARMUP_ITERS}, SOLVER.WARMUP_METHOD {method}", hint=near(method, _METHODS)
    ):
        warmed = WarmupParamScheduler(
            main, solver.WARMUP_FACTOR, share, method, getattr(solver, "RESCALE_INTERVAL", False)
        )
    return LRMultiplier(optimizer, multiplier=warmed, max_iter=solver.MAX_ITER)
