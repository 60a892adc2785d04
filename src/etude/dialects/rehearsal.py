"""A run gone through with nothing computed, for ``etude plan`` on a config whose own runner drives the run.

Such a run is driven by its own face: its loop, its schedule hooks, its rules of what is due. They are not described a
second time but really called, with blank batches, an update that does nothing, and every other hook only noted.
A dialect says which are which in its ``rehearse``; what is said here then agrees with the run, as it is its code.
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
from etude.preview.explain import Act

EVALUATION, SAVE, LOG_LINE = "evaluation", "save", "log line"

#: Optimizer, group, target (``lr``, ``momentum``, ``weight_decay`` …).
Driven = tuple[str, str, str]


@dataclass
class Record:
    """What the rehearsal of ``run`` writes down. Steps are counted as the engine's ``run.step`` and ``run.done`` do."""

    run: Run
    #: Values are noted every so many steps; 1 for all of them.
    stride: int = 1
    keep_acts: bool = False
    acts: list[Act] = field(default_factory=list)
    #: Point and hook → how often it is called there, in the order of the first calls.
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: What is done (:data:`EVALUATION`, :data:`LOG_LINE`, any other word) → after how many finished steps.
    done: dict[str, list[int]] = field(default_factory=dict)
    #: Finished steps and the name of the file or folder that is saved there.
    saves: list[tuple[int, str]] = field(default_factory=list)
    #: Saved names that are deleted again later.
    pruned: set[str] = field(default_factory=set)
    #: Names that are saved, too, if the results are so.
    perhaps: list[str] = field(default_factory=list)
    #: The value that the update of a step uses, as (step, value), from step 0 on.
    values: dict[Driven, list[tuple[int, float]]] = field(default_factory=dict)
    #: What cannot be reported, and why.
    notes: list[str] = field(default_factory=list)
    steps: int = 0

    def act(self, point: str, who: str) -> None:
        """``who`` is called at ``point`` now."""
        self.calls[point, who] += 1
        if self.keep_acts:
            self.acts.append(Act(self.run.step, self.run.epoch, point, who))

    def did(self, what: str, file: str = "") -> None:
        """Something is done now, after ``run.done`` steps; a save has a file."""
        self.done.setdefault(what, []).append(self.run.done)
        if file:
            self.saves.append((self.run.done, file))
            self.pruned.discard(file)

    def prune(self, file: str) -> None:
        """A file that was saved earlier is deleted now."""
        self.pruned.add(file)

    def update(self) -> None:
        """Stands where a batch would change the model: notes the values that the step uses."""
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
        """The names that are on the disk when the run is over."""
        return [name for name in dict.fromkeys(name for _, name in self.saves) if name not in self.pruned]


class Noted(Hook):
    """Another hook, written down wherever it would be called.

    ``really``: it is called too. ``instead``: what to call at a point in its place, such as a rule of what is due.
    """

    def __init__(
        self, hook: Hook, record: Record, *, really: bool = False, instead: Mapping[str, Call] | None = None
    ) -> None:
        self.hook, self.record, self.really, self.instead = hook, record, really, dict(instead or {})
        self.priority, self.every = hook.priority, hook.every

    @property
    def name(self) -> str:
        return self.hook.name

    @property
    def origin(self) -> str:
        return self.hook.origin

    def calls(self) -> dict[str, Call]:
        return {point: self._noting(point, call) for point, call in self.hook.calls().items()}

    def _noting(self, point: str, call: Call) -> Call:
        record, name = self.record, self.name
        then = self.instead.get(point, call if self.really else None)

        def noting(run: Run) -> None:
            record.act(point, name)
            if then is not None:
                then(run)

        return noting


class Blank:
    """A loader of the same length that loads nothing; everything else about it is the loader's."""

    def __init__(self, loader: Any, batch: Any = None) -> None:
        self._loader, self._batch = loader, batch

    def __iter__(self) -> Iterator[Any]:
        try:
            length = len(self._loader)
        except TypeError:
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
    """Return the numbers of a parameter group by name; the first of two betas is the momentum."""
    numbers = {key: float(value) for key, value in group.items() if _is_number(value)}
    if "betas" in group:
        numbers["momentum"], numbers["beta2"] = map(float, group["betas"][:2])
    return numbers


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


def rehearse(run: Run, *, points: int = 1000, keep_acts: bool = False) -> Record:
    """Go through a run that was built and has not begun, as its dialect does.

    The run cannot be used for anything else afterwards. Where user-defined code cannot do with blank batches, what was
    reported until then stays.
    """
    dialect = dialects.of(run.plan)
    dialect.prepare(run)
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
