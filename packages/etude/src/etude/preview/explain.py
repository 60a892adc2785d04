"""Predicts a run from its plan: which hook acts at which step, and with which values, without training anything.

The counters are simulated, nothing else; what a run does later has to agree, event by event. What depends on results
(early stopping, a plateau, a time budget) is reported as if it never struck.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etude.fast_dataclass import record
from etude.plan import Plan
from etude.schedules.phases import Timeline, resolve
from etude.units import Amount

STEP_POINTS = ("before_step", "after_forward", "before_update", "after_step")
EPOCH_POINTS = ("before_epoch", "after_epoch")


@record
class Actor:
    """A hook as the story needs it. ``acting`` ones do one thing when due, and once more at the end."""

    name: str
    priority: int
    points: tuple[str, ...]
    every: Amount | None = None
    acting: bool = False
    at_end: bool = False


@record
class GroupFact:
    """A parameter group before the first step."""

    optimizer: str
    name: str
    tensors: int
    numbers: int
    values: dict[str, float]


@record
class Facts:
    """What a plan cannot know by itself: lengths of the data, groups of the model, sizes."""

    steps_per_epoch: int | None
    total_steps: int | None
    actors: tuple[Actor, ...] = ()
    groups: tuple[GroupFact, ...] = ()
    #: What hooks keep from learning, in words.
    frozen: tuple[str, ...] = ()
    #: None for a stream, whose end nobody knows.
    eval_batches: int | None = 0
    #: Of the training data, without a limit; None if nobody knows.
    batches: int | None = None
    device: str = ""
    checkpoint_bytes: int = 0


@record
class Act:
    """``who`` acts at ``point``; ``step`` and ``epoch`` are the counters that it sees."""

    step: int
    epoch: int
    point: str
    who: str


def story(plan: Plan, facts: Facts) -> Iterator[Act]:
    """Yield every act of the run in order."""
    yield from _Narrator(plan, facts).tell()


def timelines(plan: Plan, facts: Facts) -> list[Timeline]:
    """Return the schedules of the plan in a run of this length."""
    return [
        resolve(schedule, steps_per_epoch=facts.steps_per_epoch, total_steps=facts.total_steps)
        for schedule in plan.schedules
    ]


def saves(acts: Sequence[Act]) -> list[int]:
    """Return after how many steps a checkpoint is written."""
    return done_at(acts, "Checkpoint")


def done_at(acts: Sequence[Act], who: str) -> list[int]:
    """Return the numbers of finished steps at which ``who`` acts."""
    numbers = [act.step + (act.point == "after_step") for act in acts if act.who == who and act.point in _ACT_POINTS]
    return sorted(set(numbers))


_ACT_POINTS = ("after_step", "after_epoch", "after_train")


class _Narrator:
    def __init__(self, plan: Plan, facts: Facts) -> None:
        self.plan, self.facts = plan, facts
        self.actors = sorted(facts.actors, key=lambda actor: actor.priority)
        self.step = self.epoch = self.pending = 0
        self.acted_at: dict[str, int] = {}

    def tell(self) -> Iterator[Act]:
        yield from self._all("before_run")
        yield from self._all("before_train")
        for mode in self._turns():
            yield from self._epoch() if mode == "train" else self._evaluation()
        yield from self._end()
        yield from self._all("after_run")

    def _turns(self) -> Iterator[str]:
        """``train`` for every epoch of training, ``val`` for a validation epoch of a workflow, until the end."""
        flow = self.plan.loop.args.get("flow", [("train", 1)]) if self.plan.loop.name == "Workflow" else [("train", 1)]
        turns = [mode for mode, count in flow for _ in range(count)]
        epochs, total = self.plan.train.epochs, self.facts.total_steps
        position = 0
        while (epochs is None or self.epoch < epochs) and (total is None or self.step < total):
            yield turns[position % len(turns)]
            position += 1

    def _epoch(self) -> Iterator[Act]:
        yield from self._due("before_epoch")
        assert self.facts.steps_per_epoch is not None, "the story needs data with a length"
        for _ in range(self.facts.steps_per_epoch):
            yield from self._step()
            if self.facts.total_steps is not None and self.step >= self.facts.total_steps:
                break
        yield from self._due("after_epoch")
        self.epoch += 1

    def _step(self) -> Iterator[Act]:
        yield from self._due("before_step")
        yield from self._due("after_forward")
        self.pending += 1
        if self.pending >= self._group_size():
            yield from self._due("before_update")
            self.pending = 0
        yield from self._due("after_step")
        self.step += 1

    def _group_size(self) -> int:
        accumulate, total = self.plan.train.accumulate, self.facts.total_steps
        first = self.step - (self.pending - 1)
        return accumulate if total is None else min(accumulate, total - first)

    def _due(self, point: str) -> Iterator[Act]:
        for actor in self.actors:
            if point in actor.points and self._is_due(actor, point):
                yield from self._act(actor, point)

    def _is_due(self, actor: Actor, point: str) -> bool:
        if actor.every is None or actor.every.unit == "second":
            return True
        if point in EPOCH_POINTS:
            return actor.every.unit != "epoch" or (self.epoch + 1) % int(actor.every.value) == 0
        return (self.step + 1) % actor.every.steps(self.facts.steps_per_epoch) == 0

    def _act(self, actor: Actor, point: str) -> Iterator[Act]:
        yield Act(self.step, self.epoch, point, actor.name)
        works = actor.acting and point in _ACT_POINTS
        if works:
            self.acted_at[actor.name] = self.step + (point == "after_step")
        kind = actor.name.partition("#")[0]
        if works and kind == "Evaluate":
            yield from self._evaluation()
        if works and kind == "Checkpoint":
            yield from self._all("before_save")

    def _evaluation(self) -> Iterator[Act]:
        yield from self._all("before_eval")
        for _ in range(self.facts.eval_batches or 0):
            yield from self._all("before_eval_step")
            yield from self._all("after_eval_step")
        yield from self._all("after_eval")

    def _end(self) -> Iterator[Act]:
        for actor in self.actors:
            if actor.acting:
                if actor.at_end and self.acted_at.get(actor.name) != self.step and self.step > 0:
                    yield from self._act(actor, "after_train")
            elif "after_train" in actor.points:
                yield from self._act(actor, "after_train")

    def _all(self, point: str) -> Iterator[Act]:
        for actor in self.actors:
            if point in actor.points:
                yield Act(self.step, self.epoch, point, actor.name)
