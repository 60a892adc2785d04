"""Turns the phases of a plan into a factor for every step: windows, chains, by epoch or by step.

Phases follow one another. A phase begins where the one before it ends, or at ``begin``; it ends at ``until``, counted
from the start of the run, or with the run. In a gap, and after the last phase, the value stays where the phase before
arrived; before the first phase it is the base value.

``explain`` and the schedule hook read the same :class:`Timeline`, so a plan shows the numbers that will be used.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Mapping
from functools import partial
from keyword import iskeyword
from typing import Any

from etude.errors import ConfigError, placed
from etude.fast_dataclass import record
from etude.plan import Phase, Schedule, Spec
from etude.registry import SCHEDULES
from etude.schedules.curves import Factor, Plateau, Window, by_share
from etude.units import parse_written


@record
class Piece:
    """A phase in steps: from ``begin`` to ``end`` (None: as long as the run), and the factor by the step within it."""

    begin: int
    end: int | None
    factor: Factor
    name: str = ""


class Timeline:
    """The factor of one schedule at every step; ``value(step, base)`` is the base times it.

    >>> from etude.schedules.curves import Linear, Window
    >>> warmup = Timeline([Piece(0, 4, by_share(Linear(0.0, 1.0), Window(0, 4)))])
    >>> [warmup.value(step, 0.1) for step in (0, 2, 4, 100)]
    [0.0, 0.05, 0.1, 0.1]
    """

    def __init__(
        self,
        pieces: list[Piece],
        *,
        target: str = "lr",
        optimizer: str = "",
        groups: tuple[str, ...] = (),
        reactive: tuple[Plateau, ...] = (),
    ) -> None:
        self.pieces, self.target, self.optimizer, self.groups = tuple(pieces), target, optimizer, groups
        #: Curves that wait for the results of evaluations.
        self.reactive = reactive
        self._begins = [piece.begin for piece in pieces]

    def factor(self, step: int) -> float:
        number = bisect_right(self._begins, step) - 1
        if number < 0:
            return 1.0
        piece = self.pieces[number]
        end = step if piece.end is None else min(step, piece.end)
        return piece.factor(end - piece.begin)

    def value(self, step: int, base: float) -> float:
        return base * self.factor(step)


def resolve(schedule: Schedule, *, steps_per_epoch: int | None, total_steps: int | None) -> Timeline:
    """Return the timeline of ``schedule`` in a run of this length; unknown lengths are None."""
    pieces: list[Piece] = []
    reactive: list[Plateau] = []
    position: int | None = 0
    for phase in schedule.phases:
        with placed(str(phase.at) or getattr(phase.curve, "at", "")):
            curve = curve_of(phase.curve)
            piece = _piece(phase, curve, position, steps_per_epoch, total_steps)
        pieces.append(piece)
        position = piece.end
        reactive += [curve] if isinstance(curve, Plateau) else []
    return Timeline(
        pieces,
        target=schedule.target,
        optimizer=schedule.optimizer,
        groups=schedule.groups,
        reactive=tuple(reactive),
    )


def curve_of(spec: Any) -> Any:
    """Return the curve that ``spec`` names. A plain function of the share of the phase works too; an object is used
    as is."""
    if not isinstance(spec, Spec):
        return spec
    factory = SCHEDULES.get(spec.name, at=str(spec.at))
    args = python_names(spec.args)
    if inspect.isfunction(factory):
        return partial(factory, **args)
    return SCHEDULES.build(Spec(kind=spec.kind, name=spec.name, args=args, at=spec.at))


def python_names(args: Mapping[str, Any]) -> dict[str, Any]:
    """Rename arguments of a config for Python: ``from`` is a keyword there, so the parameter is ``from_``."""
    return {f"{name}_" if iskeyword(name) else name: value for name, value in args.items()}


def _piece(
    phase: Phase, curve: Any, position: int | None, steps_per_epoch: int | None, total_steps: int | None
) -> Piece:
    if position is None:
        raise ConfigError("a phase follows one that lasts until the end of the run", hint="give that one an `until`")
    begin = position if phase.begin is None else phase.begin.steps(steps_per_epoch)
    end = total_steps if phase.until is None else phase.until.steps(steps_per_epoch)
    if begin < position:
        raise ConfigError(f"a phase begins at step {begin}, before the one in front of it ends (step {position})")
    if end is not None and end < begin:
        raise ConfigError(f"a phase ends at step {end}, before it begins (step {begin})")
    window = Window(begin, None if end is None else end - begin, steps_per_epoch)
    factor = curve.prepare(window) if hasattr(curve, "prepare") else by_share(curve, window)
    if phase.by == "epoch":
        factor = _by_epoch(factor, begin, steps_per_epoch)
    return Piece(begin, end, factor, getattr(phase.curve, "name", type(phase.curve).__name__))


def _by_epoch(factor: Factor, begin: int, steps_per_epoch: int | None) -> Factor:
    """Return ``factor`` with its value at the start of the epoch that a step belongs to."""
    if steps_per_epoch is None:
        raise ConfigError("a schedule by epoch needs a dataset with a length")
    return lambda step: factor(max(0, (begin + step) // steps_per_epoch * steps_per_epoch - begin))


def schedules_from(given: Any) -> tuple[Schedule, ...]:
    """Return schedules as Python code writes them: a curve, phases in a list, or a mapping from what they drive.

    A phase is a curve (an object, a name, a function of the share of the phase) or a pair of a curve and its end.

    >>> from etude.schedules.curves import Cosine, Linear
    >>> lr, = schedules_from([(Linear(0.0, 1.0), "5ep"), Cosine()])
    >>> lr.target, [str(phase.until) for phase in lr.phases]
    ('lr', ['5ep', 'None'])
    """
    named = given if isinstance(given, Mapping) and "type" not in given else {"lr": given}
    phases = {str(key): value if isinstance(value, list) else [value] for key, value in named.items()}
    return tuple(Schedule(target=key, phases=tuple(map(_phase, own))) for key, own in phases.items())


def _phase(given: Any) -> Phase:
    curve, until = given if isinstance(given, tuple) else (given, None)
    if isinstance(curve, str):
        curve = Spec(kind="schedule", name=curve)
    elif isinstance(curve, Mapping):
        args = {key: value for key, value in curve.items() if key not in ("type", "until")}
        until = curve.get("until", until)
        curve = Spec(kind="schedule", name=str(curve["type"]), args=args)
    elif not callable(curve) and not hasattr(curve, "prepare"):
        hint = "give a curve of etude.schedules.curves, its name, or a scheduler of torch"
        raise ConfigError(f"schedule: {curve!r} is not a curve", hint=hint)
    return Phase(curve=curve, until=None if until in (None, "end") else parse_written(until))


def sample(timeline: Timeline, base: float, steps: int, *, points: int = 200) -> list[tuple[int, float]]:
    """Sample the curve at some steps, including the first and the last, for drawing."""
    count = max(1, min(points, steps))
    chosen = sorted({round(number * (steps - 1) / max(1, count - 1)) for number in range(count)}) if steps else []
    return [(step, timeline.value(step, base)) for step in chosen]
