"""Schedulers of the learning rate, the momentum and the weight decay (``CosineAnnealingLR``, ``StepMomentum`` …)."""

from __future__ import annotations

from typing import Any

from etude_openmm.mmengine.live.param_scheduler import plateau, rules
from etude_openmm.mmengine.live.param_scheduler.base import _ParamScheduler

#: Name → the curve of ``<name>LR`` and ``<name>Momentum``, and its description.
_CURVES: dict[str, tuple[type[_ParamScheduler], str]] = {
    "Constant": (rules.ConstantParamScheduler, "a constant factor, for a window"),
    "CosineAnnealing": (rules.CosineAnnealingParamScheduler, "a cosine"),
    "CosineRestart": (rules.CosineRestartParamScheduler, "cosines with restarts"),
    "Exponential": (rules.ExponentialParamScheduler, "a constant ratio"),
    "Linear": (rules.LinearParamScheduler, "a straight line"),
    "MultiStep": (rules.MultiStepParamScheduler, "milestones"),
    "OneCycle": (rules.OneCycleParamScheduler, "one cycle"),
    "Poly": (rules.PolyParamScheduler, "a polynomial"),
    "ReduceOnPlateau": (plateau.ReduceOnPlateauParamScheduler, "the metrics of the validations"),
    "Step": (rules.StepParamScheduler, "steps of equal length"),
}


class LRSchedulerMixin(_ParamScheduler):
    """Schedules the entry ``lr``."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "lr", *args, **kwargs)


class MomentumSchedulerMixin(_ParamScheduler):
    """Schedules the entry ``momentum``. For Adam and similar optimizers it stands for the first beta."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self.use_betas = "momentum" not in optimizer.defaults
        if self.use_betas:
            if "betas" not in optimizer.defaults:
                raise ValueError("optimizer must support momentum when using momentum scheduler")
            for group in optimizer.param_groups:
                group["momentum"] = group["betas"][0]
        super().__init__(optimizer, "momentum", *args, **kwargs)

    def step(self, *args: Any, **kwargs: Any) -> None:
        super().step(*args, **kwargs)
        if self.use_betas:
            for group in self.optimizer.param_groups:
                group["betas"] = (group["momentum"], group["betas"][1])


class CosineAnnealingWeightDecay(rules.CosineAnnealingParamScheduler):
    """MMPretrain's cosine for the weight decay. Groups that start without decay (biases, norms) stay without."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "weight_decay", *args, **kwargs)

    def _next(self, value: float, base: float) -> float:
        return 0.0 if base == 0 else super()._next(value, base)


def _define(mixin: type[_ParamScheduler], name: str, curve: type[_ParamScheduler], doc: str) -> None:
    """Define the class ``name``: ``curve`` for the entry that ``mixin`` sets."""
    globals()[name] = type(name, (mixin, curve), {"__module__": __name__, "__doc__": doc})


for _name, (_curve, _words) in _CURVES.items():
    _define(LRSchedulerMixin, f"{_name}LR", _curve, f"The learning rate by {_words}.")
    if _name != "OneCycle":  # MMEngine has one-cycle for the learning rate only
        _define(MomentumSchedulerMixin, f"{_name}Momentum", _curve, f"The momentum by {_words}.")
