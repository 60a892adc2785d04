"""Rehearses a run without computing anything, for ``etude plan`` on configs of other systems.

The real loop, schedule hooks and rules of what is due are called, with blank batches and an update that does nothing.
All other hooks are only recorded. ``rehearse`` of a dialect decides which are which. The result agrees with the run,
because the code is the same.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from etude import dialects
from etude.core.hook import Call, Hook
from etude.core.run import Run
from etude.dialects.properties import reads
from etude.errors import UserError
from etude.preview.explain import Act

EVALUATION, SAVE, LOG_LINE = "evaluation", "save", "log line"

#: Optimizer, group, target (``lr``, ``momentum``, ``weight_decay`` …).
Driven = tuple[str, str, str]


@dataclass
class Record:
    """The results of rehearsing ``run``. Steps are counted like ``run.step`` and ``run.done``."""

    run: Run
    #: Values are recorded every so many steps.
    stride: int = 1
    keep_acts: bool = False
    acts: list[Act] = field(default_factory=list)
    #: (point, hook) → number of calls, in the order of the first calls.
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Action (:data:`EVALUATION`, :data:`LOG_LINE`, any other word) → the numbers of finished steps when it happens.
    done: dict[str, list[int]] = field(default_factory=dict)
    #: The number of finished steps and the name of the file or folder that is saved then.
    saves: list[tuple[int, str]] = field(default_factory=list)
    #: Saved names that are deleted later.
    pruned: set[str] = field(default_factory=set)
    #: Names that may be saved, too, depending on results.
    perhaps: list[str] = field(default_factory=list)
    #: The values that updates use, as (step, value), from step 0 on.
    values: dict[Driven, list[tuple[int, float]]] = field(default_factory=dict)
    #: What cannot be predicted, and why.
    notes: list[str] = field(default_factory=list)
    steps: int = 0

    def act(self, point: str, who: str) -> None:
        """Record that ``who`` is called at ``point`` now."""
        self.calls[point, who] += 1
        if self.keep_acts:
            self.acts.append(Act(self.run.step, self.run.epoch, point, who))

    def did(self, what: str, file: str = "") -> None:
        """Record an action after ``run.done`` steps; a save has a file."""
        self.done.setdefault(what, []).append(self.run.done)
        if file:
            self.saves.append((self.run.done, file))
            self.pruned.discard(file)

    def prune(self, file: str) -> None:
        """Record that a saved file is deleted now."""
        self.pruned.add(file)

    def update(self) -> None:
        """Record the values that this step uses, in place of an update of the model."""
        step, self.steps = self.run.step, self.run.step + 1
        if step % self.stride == 0 or self.steps == self.run.total_steps:
            self._sample(step)

    def _sample(self, step: int) -> None:
        for name, optimizer in self.run.optimizers.items():
            for index, group in enumerate(optimizer.param_groups):
                label = str(group.get("name", index))
                for target, value in values_of(group).items():
                    self.values.setdefault((name, label, target), []).append((step, value))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def kept(self) -> list[str]:
        """Return the names that are on the disk when the run is over."""
        return [name for name in dict.fromkeys(name for _, name in self.saves) if name not in self.pruned]


class Noted(Hook):
    """Wraps a hook and records its calls.

    With ``really`` it is called, too. ``instead`` maps points to functions to call in its place.
    """

    def __init__(
        self, hook: Hook, record: Record, *, really: bool = False, instead: Mapping[str, Call] | None = None
    ) -> None:
        self.hook, self.record, self.really, self.instead = hook, record, really, dict(instead or {})
        self.priority, self.every = hook.priority, hook.every

    name: str = reads("hook.name")
    origin: str = reads("hook.origin")

    def calls(self) -> dict[str, Call]:
        return {point: self._recording(point, call) for point, call in self.hook.calls().items()}

    def _recording(self, point: str, call: Call) -> Call:
        record, name = self.record, self.name
        then = self.instead.get(point, call if self.really else None)

        def noting(run: Run) -> None:
            record.act(point, name)
            if then is not None:
                then(run)

        return noting


class Blank:
    """A loader of the same length that yields blank batches. Other attributes are those of the real loader."""

    def __init__(self, loader: Any, batch: Any = None) -> None:
        self._loader, self._batch = loader, batch

    def __iter__(self) -> Iterator[Any]:
        try:
            length = len(self._loader)
        except TypeError:  # an endless loader has no length
            while True:
                yield self._batch
        for _ in range(length):
            yield self._batch

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._loader, name)


def values_of(group: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a parameter group by name. The first of two betas is called momentum."""
    numbers = {key: float(value) for key, value in group.items() if _is_number(value)}
    if "betas" in group:
        numbers["momentum"], numbers["beta2"] = map(float, group["betas"][:2])
    return numbers


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


#: A rehearsal of more steps takes an hour.
MOST_STEPS = 50_000_000


def rehearse(run: Run, *, points: int = 1000, keep_acts: bool = False) -> Record:
    """Rehearse a run that is built and has not begun.

    The run cannot be used for anything else afterwards. If user-defined code fails with blank batches, what was
    recorded until then is returned.
    """
    dialect = dialects.of(run.plan)
    dialect.prepare(run)
    if (run.total_steps or 0) > MOST_STEPS:
        text = f"a rehearsal goes through every step, and this run has {run.total_steps}; the most are {MOST_STEPS}"
        raise UserError(text)
    stride = max(1, (run.total_steps or 0) // points)
    record = Record(run, stride=stride, keep_acts=keep_acts)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rehearsed = dialect.rehearse(run, record)
        if not rehearsed:
            record.note("values, evaluations and saves are decided while it runs, and are not predicted")
    except Exception as error:
        record.note(
            f"shown only up to step {record.steps}: without data the run raises {type(error).__name__}: {error}"
        )
    return record
