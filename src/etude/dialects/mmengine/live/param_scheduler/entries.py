"""The curves on the learning rate, on the momentum (without one-cycle) and on the weight decay."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.param_scheduler import onecycle, plateau, rules
from etude.dialects.mmengine.live.param_scheduler.base import _ParamScheduler

#: The curves that ``<name>LR`` and ``<name>Momentum`` follow, and the words for each.
_CURVES: dict[str, tuple[type[_ParamScheduler], str]] = {
    "Constant": (rules.ConstantParamScheduler, "a constant factor, for a window"),
    "CosineAnnealing": (rules.CosineAnnealingParamScheduler, "a cosine"),
    "CosineRestart": (rules.CosineRestartParamScheduler, "cosines with restarts"),
    "Exponential": (rules.ExponentialParamScheduler, "a constant ratio"),
    "Linear": (rules.LinearParamScheduler, "a straight line"),
    "MultiStep": (rules.MultiStepParamScheduler, "milestones"),
    "OneCycle": (onecycle.OneCycleParamScheduler, "one cycle"),
    "Poly": (rules.PolyParamScheduler, "a polynomial"),
    "ReduceOnPlateau": (plateau.ReduceOnPlateauParamScheduler, "the metrics of the validations"),
    "Step": (rules.StepParamScheduler, "steps of equal length"),
}


class LRSchedulerMixin(_ParamScheduler):
    """Fixes the entry to ``lr``."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "lr", *args, **kwargs)


class MomentumSchedulerMixin(_ParamScheduler):
    """Fixes the entry to ``momentum``; for the Adam family a group's ``momentum`` stands for its first beta."""

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
    """MMPretrain's; groups that start without a decay (biases, norms) stay without."""

    def __init__(self, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, "weight_decay", *args, **kwargs)

    def _next(self, value: float, base: float) -> float:
        return 0.0 if base == 0 else super()._next(value, base)


def _on(mixin: type[_ParamScheduler], name: str, curve: type[_ParamScheduler], doc: str) -> None:
    """Add the class ``name``: ``curve`` on the entry that ``mixin`` fixes."""
    globals()[name] = type(name, (mixin, curve), {"__module__": __name__, "__doc__": doc})


for _name, (_curve, _words) in _CURVES.items():
    _on(LRSchedulerMixin, f"{_name}LR", _curve, f"The learning rate by {_words}.")
    if _name != "OneCycle":  # MMEngine has that one for the learning rate alone
        _on(MomentumSchedulerMixin, f"{_name}Momentum", _curve, f"The momentum by {_words}.")
