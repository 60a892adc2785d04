"""Momentum policies: ``momentum_config = dict(policy='cyclic', …)`` names the class ``CyclicMomentumUpdaterHook``.

They change ``momentum`` or, in groups without it, ``betas[0]``. A warmup divides by its factor, so that momentum is
higher in the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from etude_openmm.mmcv1.live.checks import require
from etude_openmm.mmcv1.live.hooks import policies
from etude_openmm.mmcv1.live.hooks.hook import HOOKS
from etude_openmm.mmcv1.live.hooks.lr_updater import format_param

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner


class MomentumUpdaterHook(policies.PolicyHook):
    """The base of all momentum policies. Subclasses define ``get_momentum(runner, base_momentum)``."""

    _word = "momentum"

    def __init__(
        self, by_epoch: bool = True, warmup: str | None = None, warmup_iters: int = 0, warmup_ratio: float = 0.9
    ) -> None:
        policies.check_warmup(warmup, warmup_iters, warmup_ratio)
        self.by_epoch, self.warmup = by_epoch, warmup
        self.warmup_iters, self.warmup_ratio = warmup_iters, warmup_ratio
        self.base_momentum: Any = []
        self.regular_momentum: Any = []

    def get_momentum(self, runner: BaseRunner, base_momentum: float) -> float:
        raise AttributeError(f"{type(self).__name__} must define get_momentum(runner, base_momentum)")

    def get_regular_momentum(self, runner: BaseRunner) -> Any:
        """Return the current values of the policy, without warmup."""
        return policies.each(self.base_momentum, lambda value: self.get_momentum(runner, value))

    def get_warmup_momentum(self, cur_iters: int) -> Any:
        """Return the regular values divided by the factor of iteration ``cur_iters`` of the warmup."""
        factor = self._warmup_factor(cur_iters)
        return policies.each(self.regular_momentum, lambda value: value / factor)

    def _initial(self, group: dict[str, Any]) -> Any:
        return group.setdefault("initial_momentum", group["momentum"] if "momentum" in group else group["betas"][0])

    def _set_momentum(self, runner: BaseRunner, momentum_groups: Any) -> None:
        policies.set_per_group(runner.optimizer, momentum_groups, write_momentum)


def write_momentum(group: dict[str, Any], value: float) -> None:
    if "momentum" in group:
        group["momentum"] = value
    elif "betas" in group:
        group["betas"] = (value, group["betas"][1])


@HOOKS.register_module()
class StepMomentumUpdaterHook(MomentumUpdaterHook):
    """Multiplies by ``gamma`` every ``step`` epochs or iterations, or at each milestone, down to ``min_momentum``."""

    def __init__(
        self, step: int | list[int], gamma: float = 0.5, min_momentum: float | None = None, **kwargs: Any
    ) -> None:
        policies.check_step(step)
        self.step, self.gamma, self.min_momentum = step, gamma, min_momentum
        super().__init__(**kwargs)

    def get_momentum(self, runner: BaseRunner, base_momentum: float) -> float:
        passed = policies.count_steps(self.step, runner.epoch if self.by_epoch else runner.iter)
        value = base_momentum * self.gamma**passed
        return value if self.min_momentum is None else max(value, self.min_momentum)


class _ToTarget(MomentumUpdaterHook):
    """The base of curves that end at ``min_momentum`` or at ``min_momentum_ratio`` times the base value."""

    curve: Callable[[float, float, float], float]

    def __init__(
        self, min_momentum: float | None = None, min_momentum_ratio: float | None = None, **kwargs: Any
    ) -> None:
        policies.check_one_of(min_momentum, min_momentum_ratio, "momentum")
        self.min_momentum, self.min_momentum_ratio = min_momentum, min_momentum_ratio
        super().__init__(**kwargs)

    def get_momentum(self, runner: BaseRunner, base_momentum: float) -> float:
        at, end = policies.progress(self, runner)
        target = self.min_momentum
        if self.min_momentum_ratio is not None:
            target = base_momentum * self.min_momentum_ratio
        assert target is not None
        return type(self).curve(base_momentum, target, at / end)


@HOOKS.register_module()
class CosineAnnealingMomentumUpdaterHook(_ToTarget):
    """Follows half a cosine wave over the whole run."""

    curve = staticmethod(policies.annealing_cos)


@HOOKS.register_module()
class LinearAnnealingMomentumUpdaterHook(_ToTarget):
    """Follows a straight line over the whole run."""

    curve = staticmethod(policies.annealing_linear)


@HOOKS.register_module()
class CyclicMomentumUpdaterHook(MomentumUpdaterHook):
    """Mirrors the cyclic learning rate: goes down to ``target_ratio[0]`` and up to ``target_ratio[1]``."""

    def __init__(
        self,
        by_epoch: bool = False,
        target_ratio: Any = (0.85 / 0.95, 1.0),
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = "cos",
        gamma: float = 1.0,
        **kwargs: Any,
    ) -> None:
        self.cycle = policies.Cycle(target_ratio, cyclic_times, step_ratio_up, anneal_strategy, gamma)
        require(not by_epoch, "the cyclic policy counts iterations: by_epoch must be False")
        self.target_ratio, self.cyclic_times, self.step_ratio_up = self.cycle.ratio, cyclic_times, step_ratio_up
        self.gamma = gamma
        super().__init__(by_epoch, **kwargs)

    def get_momentum(self, runner: BaseRunner, base_momentum: float) -> float:
        return self.cycle.at(base_momentum, runner)


@HOOKS.register_module()
class OneCycleMomentumUpdaterHook(MomentumUpdaterHook):
    """Goes from ``max_momentum`` down to ``base_momentum`` and up again, once in the run."""

    def __init__(
        self,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        three_phase: bool = False,
        by_epoch: bool = False,
        **kwargs: Any,
    ) -> None:
        require(not by_epoch, "the OneCycle policy counts iterations: by_epoch must be False")
        for name, given in (("base_momentum", base_momentum), ("max_momentum", max_momentum)):
            if not isinstance(given, float | list | dict):
                raise ValueError(f"{name} must be a float, a list or a dict, got {type(given).__name__}")
        policies.check_pct_start(pct_start)
        self._base_momentum, self._max_momentum = base_momentum, max_momentum
        self.pct_start, self.three_phase = pct_start, three_phase
        self.anneal_func = policies.anneal_function(anneal_strategy)
        super().__init__(by_epoch, **kwargs)

    def before_run(self, runner: BaseRunner) -> None:
        for name, one in policies.by_name(runner.optimizer).items():
            self._prepare(name, one)
        steps = policies.known_end(runner.max_iters)
        top = float(self.pct_start * steps) - 1
        # 0 stands for max_momentum, 1 for base_momentum. The third phase stays at the maximum.
        pieces = [(top, 0.0, 1.0), (2 * top, 1.0, 0.0), (steps - 1, 0.0, 0.0)]
        self.phases = policies.Phases(pieces if self.three_phase else [pieces[0], (steps - 1, 1.0, 0.0)], endless=True)
        # The base value is the whole group here: get_momentum reads both bounds from it.
        self.base_momentum = policies.per_group(runner.optimizer, lambda group: group)

    def get_momentum(self, runner: BaseRunner, base_momentum: Any) -> float:
        group, (start, end, share) = base_momentum, self.phases.locate(runner.iter)
        levels = (group["max_momentum"], group["base_momentum"])
        return self.anneal_func(levels[int(start)], levels[int(end)], share)

    def _prepare(self, name: str, optimizer: Any) -> None:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise ValueError(f"the optimizer {name} has neither momentum nor betas to follow momentum_config with")
        base = format_param(name, optimizer, self._base_momentum)
        most = format_param(name, optimizer, self._max_momentum)
        for group, low, high in zip(optimizer.param_groups, base, most, strict=True):
            write_momentum(group, high)
            group["base_momentum"], group["max_momentum"] = low, high
