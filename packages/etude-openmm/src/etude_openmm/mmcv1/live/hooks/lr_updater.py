"""Learning rate policies: ``lr_config = dict(policy='step', …)`` names the class ``StepLrUpdaterHook``.

The regular value follows the policy, per epoch or per iteration. A warmup scales it per iteration in both cases and
does not shift it. Every value is computed from the base rate, so a value that other code sets in a group is replaced.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from etude_openmm.mmcv1.live.checks import require
from etude_openmm.mmcv1.live.hooks import policies
from etude_openmm.mmcv1.live.hooks.hook import HOOKS

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

#: Rates per parameter group, or per optimizer and group.
Rates = list[Any] | dict[str, list[Any]]


class LrUpdaterHook(policies.PolicyHook):
    """The base of all policies. Subclasses define ``get_lr(runner, base_lr)``; ``policy='<Prefix>'`` selects them."""

    _word = "lr"

    def __init__(
        self,
        by_epoch: bool = True,
        warmup: str | None = None,
        warmup_iters: int = 0,
        warmup_ratio: float = 0.1,
        warmup_by_epoch: bool = False,
    ) -> None:
        policies.check_warmup(warmup, warmup_iters, warmup_ratio)
        self.by_epoch, self.warmup, self.warmup_ratio = by_epoch, warmup, warmup_ratio
        self.warmup_by_epoch = warmup_by_epoch
        self.warmup_epochs = warmup_iters if warmup_by_epoch else None
        self.warmup_iters = None if warmup_by_epoch else warmup_iters
        self.base_lr: Rates = []
        self.regular_lr: Rates = []

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        raise AttributeError(f"{type(self).__name__} must define get_lr(runner, base_lr)")

    def get_regular_lr(self, runner: BaseRunner) -> Rates:
        """Return the current rates of the policy, without warmup."""
        return policies.each(self.base_lr, lambda rate: self.get_lr(runner, rate))  # type: ignore[no-any-return]

    def get_warmup_lr(self, cur_iters: int) -> Rates:
        """Return the regular rates scaled for iteration ``cur_iters`` of the warmup."""
        factor = self._warmup_factor(cur_iters)
        return policies.each(self.regular_lr, lambda rate: rate * factor)  # type: ignore[no-any-return]

    def before_train_epoch(self, runner: BaseRunner) -> None:
        if self.warmup_iters is None:
            assert self.warmup_epochs is not None
            self.warmup_iters = self.warmup_epochs * len(runner.data_loader)
        super().before_train_epoch(runner)

    def _initial(self, group: dict[str, Any]) -> Any:
        # A resumed optimizer has it already. As in mmcv, that value wins over the lr of the config.
        return group.setdefault("initial_lr", group["lr"])

    def _set_lr(self, runner: BaseRunner, lr_groups: Rates) -> None:
        policies.set_per_group(runner.optimizer, lr_groups, _write_lr)


def _write_lr(group: dict[str, Any], value: Any) -> None:
    group["lr"] = value


@HOOKS.register_module()
class FixedLrUpdaterHook(LrUpdaterHook):
    """Keeps the base rate."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        return base_lr


@HOOKS.register_module()
class StepLrUpdaterHook(LrUpdaterHook):
    """Multiplies by ``gamma`` every ``step`` epochs or iterations, or at each milestone, down to ``min_lr``."""

    def __init__(self, step: int | list[int], gamma: float = 0.1, min_lr: float | None = None, **kwargs: Any) -> None:
        policies.check_step(step)
        self.step, self.gamma, self.min_lr = step, gamma, min_lr
        super().__init__(**kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        rate = base_lr * self.gamma ** policies.count_steps(self.step, runner.epoch if self.by_epoch else runner.iter)
        return rate if self.min_lr is None else max(rate, self.min_lr)


@HOOKS.register_module()
class ExpLrUpdaterHook(LrUpdaterHook):
    """Multiplies by ``gamma`` at every epoch or iteration."""

    def __init__(self, gamma: float, **kwargs: Any) -> None:
        self.gamma = gamma
        super().__init__(**kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        return float(base_lr * self.gamma ** (runner.epoch if self.by_epoch else runner.iter))


@HOOKS.register_module()
class PolyLrUpdaterHook(LrUpdaterHook):
    """Falls to ``min_lr`` along ``(1 - progress) ** power``."""

    def __init__(self, power: float = 1.0, min_lr: float = 0.0, **kwargs: Any) -> None:
        self.power, self.min_lr = power, min_lr
        super().__init__(**kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at, end = policies.progress(self, runner)
        return float((base_lr - self.min_lr) * (1 - at / end) ** self.power + self.min_lr)


@HOOKS.register_module()
class InvLrUpdaterHook(LrUpdaterHook):
    """Multiplies the base rate by ``(1 + gamma t) ** -power``."""

    def __init__(self, gamma: float, power: float = 1.0, **kwargs: Any) -> None:
        self.gamma, self.power = gamma, power
        super().__init__(**kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at = runner.epoch if self.by_epoch else runner.iter
        return float(base_lr * (1 + self.gamma * at) ** (-self.power))


class _ToTarget(LrUpdaterHook):
    """The base of curves that end at ``min_lr`` or at ``min_lr_ratio`` times the base rate."""

    def __init__(self, min_lr: float | None = None, min_lr_ratio: float | None = None, **kwargs: Any) -> None:
        policies.check_one_of(min_lr, min_lr_ratio, "lr")
        self.min_lr, self.min_lr_ratio = min_lr, min_lr_ratio
        super().__init__(**kwargs)

    def target(self, base_lr: float) -> float:
        if self.min_lr_ratio is not None:
            return base_lr * self.min_lr_ratio
        assert self.min_lr is not None
        return self.min_lr


@HOOKS.register_module()
class CosineAnnealingLrUpdaterHook(_ToTarget):
    """Follows half a cosine wave over the whole run."""

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at, end = policies.progress(self, runner)
        return policies.annealing_cos(base_lr, self.target(base_lr), at / end)


@HOOKS.register_module()
class FlatCosineAnnealingLrUpdaterHook(_ToTarget):
    """Keeps the base rate for the share ``start_percent`` of the run, then follows half a cosine wave."""

    def __init__(
        self,
        start_percent: float = 0.75,
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(min_lr, min_lr_ratio, **kwargs)
        # mmcv refuses the integers 0 and 1, too.
        if not isinstance(start_percent, float) or not 0 <= start_percent <= 1:
            raise ValueError(f"start_percent must be a float between 0 and 1, got {start_percent!r}")
        self.start_percent = start_percent

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at, end = policies.progress(self, runner)
        # Rounds half to even, as mmcv does.
        start = round(end * self.start_percent)
        if at < start:
            return base_lr
        return policies.annealing_cos(base_lr, self.target(base_lr), (at - start) / (end - start))


@HOOKS.register_module()
class CosineRestartLrUpdaterHook(_ToTarget):
    """Follows several half cosine waves, each with its own period and weight."""

    def __init__(
        self,
        periods: Sequence[int],
        restart_weights: Sequence[float] = [1],
        min_lr: float | None = None,
        min_lr_ratio: float | None = None,
        **kwargs: Any,
    ) -> None:
        require(
            len(periods) == len(restart_weights),
            f"periods and restart_weights must be of one length, got {len(periods)} and {len(restart_weights)}",
        )
        self.periods, self.restart_weights = periods, restart_weights
        self.cumulative_periods = [sum(periods[: i + 1]) for i in range(len(periods))]
        super().__init__(min_lr, min_lr_ratio, **kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at, _ = policies.progress(self, runner)
        number = position_from_periods(at, self.cumulative_periods)
        start = self.cumulative_periods[number - 1] if number else 0
        share = min((at - start) / self.periods[number], 1)
        return policies.annealing_cos(base_lr, self.target(base_lr), share, self.restart_weights[number])


@HOOKS.register_module()
class LinearAnnealingLrUpdaterHook(_ToTarget):
    """Follows a straight line over the whole run."""

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        at, end = policies.progress(self, runner)
        return policies.annealing_linear(base_lr, self.target(base_lr), at / end)


@HOOKS.register_module()
class CyclicLrUpdaterHook(LrUpdaterHook):
    """Goes up to ``target_ratio[0]`` and down to ``target_ratio[1]`` times the base rate, ``cyclic_times`` times."""

    def __init__(
        self,
        by_epoch: bool = False,
        target_ratio: Any = (10, 1e-4),
        cyclic_times: int = 1,
        step_ratio_up: float = 0.4,
        anneal_strategy: str = "cos",
        gamma: float = 1,
        **kwargs: Any,
    ) -> None:
        self.cycle = policies.Cycle(target_ratio, cyclic_times, step_ratio_up, anneal_strategy, gamma)
        require(0 < gamma <= 1, f"gamma must lie in (0, 1], got {gamma}")
        require(not by_epoch, "the cyclic policy counts iterations: by_epoch must be False")
        self.target_ratio, self.cyclic_times, self.step_ratio_up = self.cycle.ratio, cyclic_times, step_ratio_up
        self.gamma = gamma
        super().__init__(by_epoch, **kwargs)

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        return self.cycle.at(base_lr, runner)


@HOOKS.register_module()
class OneCycleLrUpdaterHook(LrUpdaterHook):
    """Goes from ``max_lr / div_factor`` up to ``max_lr`` and far down again, once in ``total_steps`` iterations."""

    def __init__(
        self,
        max_lr: Any,
        total_steps: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        div_factor: float = 25,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        by_epoch: bool = False,
        **kwargs: Any,
    ) -> None:
        require(not by_epoch, "the OneCycle policy counts iterations: by_epoch must be False")
        if not isinstance(max_lr, numbers.Number | list | dict):
            raise ValueError(f"max_lr must be a number, a list or a dict, got {type(max_lr).__name__}")
        if total_steps is not None and (not isinstance(total_steps, int) or total_steps <= 0):
            raise ValueError(f"total_steps must be a positive integer, got {total_steps!r}")
        policies.check_pct_start(pct_start)
        self._max_lr, self.total_steps, self.pct_start = max_lr, total_steps, pct_start
        self.div_factor, self.final_div_factor, self.three_phase = div_factor, final_div_factor, three_phase
        self.anneal_func = policies.anneal_function(anneal_strategy)
        super().__init__(by_epoch, **kwargs)

    def before_run(self, runner: BaseRunner) -> None:
        # Without super(): as in mmcv, the base rates come from ``max_lr``, not from the optimizer.
        total = self.total_steps if self.total_steps is not None else policies.known_end(runner.max_iters)
        if total < policies.known_end(runner.max_iters):
            raise ValueError(f"total_steps must be at least the {runner.max_iters} iterations of the run, got {total}")
        self.phases = policies.Phases(self._pieces(total), endless=False)
        rates = {name: self._start_rates(name, one) for name, one in policies.by_name(runner.optimizer).items()}
        self.base_lr = rates if isinstance(runner.optimizer, dict) else next(iter(rates.values()))

    def get_lr(self, runner: BaseRunner, base_lr: float) -> float:
        begin, target, share = self.phases.locate(runner.iter)
        return float(self.anneal_func(base_lr * begin, base_lr * target, share))

    def _pieces(self, total: int) -> list[tuple[float, float, float]]:
        # As in mmcv, phases may end between two iterations.
        top, end = float(self.pct_start * total) - 1, 1 / self.final_div_factor
        if self.three_phase:
            return [(top, 1, self.div_factor), (2 * top, self.div_factor, 1), (total - 1, 1, end)]
        return [(top, 1, self.div_factor), (total - 1, self.div_factor, end)]

    def _start_rates(self, name: str, optimizer: Optimizer) -> list[float]:
        rates = [rate / self.div_factor for rate in format_param(name, optimizer, self._max_lr)]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group.setdefault("initial_lr", rate)
        return rates


def position_from_periods(iteration: int, cumulative_periods: Sequence[int]) -> int:
    """Return the index of the period that ``iteration`` is in."""
    for number, period in enumerate(cumulative_periods):
        if iteration < period:
            return number
    raise ValueError(f"iteration {iteration} is after the last period; periods end at {list(cumulative_periods)}")


get_position_from_periods = position_from_periods


def format_param(name: str, optim: Optimizer, param: Any) -> list[Any]:
    """Return one value per parameter group, from a number, a list, or a dict that has ``name``."""
    if isinstance(param, numbers.Number):
        return [param] * len(optim.param_groups)
    if isinstance(param, dict):
        if name not in param:
            raise KeyError(f"{name} is not in {sorted(param)}")
        return format_param(name, optim, param[name])
    if len(param) != len(optim.param_groups):
        raise ValueError(
            f"{name}: expected {len(optim.param_groups)} values, one per parameter group, got {len(param)}"
        )
    return list(param)
