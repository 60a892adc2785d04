"""The base of the policies for learning rate and momentum, with their curves and warmup factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi
from typing import TYPE_CHECKING, Any, ClassVar

from etude_openmm.mmcv1.live.checks import require
from etude_openmm.mmcv1.live.hooks.hook import Hook

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

Anneal = Callable[[float, float, float], float]

WARMUPS = ("constant", "linear", "exp")


class PolicyHook(Hook):
    """Sets a value of the parameter groups, ``lr`` or ``momentum``, by epochs or iterations, with a warmup.

    mmcv has the word for the value in the names of methods and attributes (``get_lr``, ``regular_momentum``). Policies
    of users override them, so they are looked up by their names.
    """

    _word: ClassVar[str]
    by_epoch: bool
    warmup: str | None
    warmup_iters: int | None
    warmup_ratio: float

    def _named(self, name: str) -> Any:
        return getattr(self, f"{name}_{self._word}")

    def _initial(self, group: dict[str, Any]) -> Any:
        """Return the base value of a parameter group, and note it there."""
        raise NotImplementedError

    def before_run(self, runner: BaseRunner) -> None:
        setattr(self, f"base_{self._word}", per_group(runner.optimizer, self._initial))

    def before_train_epoch(self, runner: BaseRunner) -> None:
        if self.by_epoch:
            self._named("_set")(runner, self._renewed(runner))

    def before_train_iter(self, runner: BaseRunner) -> None:
        now, regular = runner.iter, self._named("regular") if self.by_epoch else self._renewed(runner)
        if self.warmup is not None:
            require(
                isinstance(self.warmup_iters, int),
                "warmup_by_epoch needs EpochBasedRunner: the length of an epoch is unknown here",
            )
            assert self.warmup_iters is not None
            # ``regular`` is empty under the iter runner with by_epoch=True, as it has no epoch stages: nothing is set.
            if now < self.warmup_iters and regular:
                self._named("_set")(runner, self._named("get_warmup")(now))
                return
        # By epochs, nothing else restores the full value if a warmup ends inside an epoch.
        if not self.by_epoch or (self.warmup is not None and now == self.warmup_iters and regular):
            self._named("_set")(runner, regular)

    def _renewed(self, runner: BaseRunner) -> Any:
        """Return the values of the policy without warmup, and keep them."""
        values = self._named("get_regular")(runner)
        setattr(self, f"regular_{self._word}", values)
        return values

    def _warmup_factor(self, cur_iters: int) -> float:
        assert self.warmup is not None and self.warmup_iters is not None
        return warmup_factor(self.warmup, cur_iters / self.warmup_iters, self.warmup_ratio)


def per_group(optimizer: Any, read: Any) -> Any:
    """Return ``read(group)`` of every parameter group: a list, or a dict of lists for several optimizers."""
    if isinstance(optimizer, dict):
        return {name: per_group(one, read) for name, one in optimizer.items()}
    return [read(group) for group in optimizer.param_groups]


def each(values: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``change(value)`` of all values, which have the form of :func:`per_group`."""
    if isinstance(values, dict):
        return {name: each(some, change) for name, some in values.items()}
    return [change(value) for value in values]


def set_per_group(optimizer: Any, values: Any, write: Any) -> None:
    """Call ``write(group, value)`` for every parameter group; ``values`` have the form of :func:`per_group`."""
    if isinstance(optimizer, dict):
        for name, one in optimizer.items():
            set_per_group(one, values[name], write)
        return
    for group, value in zip(optimizer.param_groups, values, strict=False):
        write(group, value)


def by_name(optimizer: Any) -> dict[str, Any]:
    """Return the optimizers by their names; a single one by the name of its class."""
    return optimizer if isinstance(optimizer, dict) else {type(optimizer).__name__: optimizer}


def progress(hook: Any, runner: BaseRunner) -> tuple[int, int]:
    """Return the current and the last position of the run, in epochs or iterations as the hook counts."""
    at, end = (runner.epoch, runner.max_epochs) if hook.by_epoch else (runner.iter, runner.max_iters)
    return at, known_end(end)


def known_end(end: int | None) -> int:
    if end is None:
        raise TypeError("this policy needs to know the end of the run (max_epochs or max_iters)")
    return end


def annealing_cos(start: float, end: float, factor: float, weight: float = 1) -> float:
    """Return the value between ``start`` (factor 0) and ``end`` (factor 1) on half a cosine wave."""
    return end + 0.5 * weight * (start - end) * (cos(pi * factor) + 1)


def annealing_linear(start: float, end: float, factor: float) -> float:
    """Return the value between ``start`` (factor 0) and ``end`` (factor 1) on a line."""
    return start + (end - start) * factor


def anneal_function(strategy: str) -> Anneal:
    if strategy == "cos":
        return annealing_cos
    if strategy == "linear":
        return annealing_linear
    raise ValueError(f"anneal_strategy is 'cos' or 'linear', got {strategy!r}")


def warmup_factor(kind: str, at: float, ratio: float) -> float:
    """Return the factor of a learning rate, or divisor of a momentum. ``at`` is the progress of the warmup, 0 to 1."""
    if kind == "constant":
        return ratio
    if kind == "linear":
        # In mmcv's order of operations, so that all bits agree.
        return 1 - (1 - at) * (1 - ratio)
    return float(ratio ** (1 - at))


def check_warmup(warmup: str | None, warmup_iters: int, warmup_ratio: float) -> None:
    if warmup is None:
        return
    if warmup not in WARMUPS:
        raise ValueError(f"warmup is one of {', '.join(WARMUPS)}, got {warmup!r}")
    require(warmup_iters > 0, f"warmup_iters must be positive, got {warmup_iters}")
    require(0 < warmup_ratio <= 1.0, f"warmup_ratio must lie in (0, 1], got {warmup_ratio}")


def check_step(step: Any) -> None:
    """Check that ``step`` is a positive integer or a list of them."""
    if isinstance(step, list):
        require(
            all(isinstance(s, int) and s > 0 for s in step), f"step must list positive integers (1, 2, …), got {step}"
        )
    elif isinstance(step, int):
        require(step > 0, f"step must be positive, got {step}")
    else:
        raise TypeError(f"step must be an integer or a list of integers, got {step!r}")


def count_steps(step: int | Sequence[int], progress: int) -> int:
    """Return the number of decays until ``progress``. As in mmcv, a list is read up to the first milestone ahead."""
    if isinstance(step, int):
        return progress // step
    for passed, milestone in enumerate(step):
        if progress < milestone:
            return passed
    return len(step)


def check_one_of(first: Any, second: Any, name: str) -> None:
    """Check that exactly one of ``min_<name>`` and ``min_<name>_ratio`` is given: it is the target of the curve."""
    require((first is None) != (second is None), f"give exactly one of min_{name} and min_{name}_ratio")


def check_pct_start(pct_start: Any) -> None:
    if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
        raise ValueError(f"pct_start must be a float between 0 and 1, got {pct_start!r}")


class Cycle:
    """The cyclic policy: up and down ``times`` times in a run. ``gamma`` shrinks the peak of each cycle."""

    def __init__(self, target_ratio: Any, times: int, step_ratio_up: float, strategy: str, gamma: float) -> None:
        self.ratio: tuple[float, float] = _target_ratio(target_ratio)
        require(0 <= step_ratio_up < 1.0, f"step_ratio_up must lie in [0, 1), got {step_ratio_up}")
        self.times, self.up, self.gamma, self.anneal = times, step_ratio_up, gamma, anneal_function(strategy)

    def at(self, base: float, runner: BaseRunner) -> float:
        """Return the value of the current iteration."""
        # Iterations that are left over begin another cycle, as in mmcv.
        length = known_end(runner.max_iters) // self.times
        rising = int(self.up * length)
        inside, shrink = runner.iter % length, self.gamma ** (runner.iter // length)
        # Without a rising part mmcv starts at the peak, and ``gamma`` shrinks the target instead.
        if rising == 0:
            return self.anneal(base * self.ratio[0], base * (1 - shrink + self.ratio[1] * shrink), inside / length)
        peak = base * (1 - shrink + self.ratio[0] * shrink)
        if inside < rising:
            return self.anneal(base, peak, inside / rising)
        return self.anneal(peak, base * self.ratio[1], (inside - rising) / (length - rising))


def _target_ratio(given: Any) -> tuple[float, float]:
    if isinstance(given, float):
        given = (given,)
    if isinstance(given, tuple):
        require(len(given) in (1, 2), f"target_ratio has one or two numbers, got {given}")
        return (given[0], given[0] / 1e5) if len(given) == 1 else (given[0], given[1])
    # As in mmcv, lists are refused, so YAML and JSON cannot give two numbers.
    raise ValueError(f"target_ratio must be a float or a tuple of two numbers, got {given!r}; write (10, 1e-4)")


class Phases:
    """The one-cycle policy: consecutive pieces ``(last iteration, from, to)``. Iterations may be fractions."""

    def __init__(self, pieces: Sequence[tuple[float, float, float]], *, endless: bool) -> None:
        self.pieces, self.endless = pieces, endless

    def locate(self, iteration: int) -> tuple[float, float, float]:
        """Return start and target of the piece that ``iteration`` is in, and the progress inside it, 0 to 1."""
        start = 0.0
        for number, (end, begin, target) in enumerate(self.pieces, 1):
            # The momentum's last phase also serves later iterations; mmcv's lr policy raises an error there.
            if iteration <= end or (self.endless and number == len(self.pieces)):
                return begin, target, (iteration - start) / (end - start)
            start = end
        raise ValueError(f"iteration {iteration} is after the end of the cycle, which has {start + 1:g} steps")
