"""Counts what happens in a run of any length from its period, where telling it step by step would take for ever.

Agrees with :func:`~etude.preview.explain.story`, act by act; a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from math import lcm

from etude.fast_dataclass import record
from etude.plan import Plan
from etude.preview.explain import EPOCH_POINTS, STEP_POINTS, Actor, Facts

_EVALUATION = ("before_eval", "before_eval_step", "after_eval_step", "after_eval")
#: How many numbers of many are listed from both ends.
_FIRST, _LAST = 8, 2


@record
class Done:
    """After how many steps a hook acts: the first numbers, the last ones, and how many there are."""

    first: tuple[int, ...]
    last: tuple[int, ...]
    count: int


class LongRun:
    """The acts of a run that has a length, without going through its steps."""

    def __init__(self, plan: Plan, facts: Facts) -> None:
        self.plan, self.facts = plan, facts
        self.per_epoch = facts.steps_per_epoch or 1
        epochs = plan.train.epochs
        total = facts.total_steps
        self.steps = min(n for n in (total, None if epochs is None else epochs * self.per_epoch) if n is not None)
        self.epochs = -(-self.steps // self.per_epoch)

    def done_at(self, actor: Actor) -> Done:
        """Return after how many finished steps an acting hook acts."""
        steps, epochs = self._every_steps(actor), self._every_epochs(actor)
        end = self._acts_at_end(actor)
        count = (self.steps // steps if steps else 0) + (self.epochs // epochs if epochs else 0) + end
        if steps and epochs:  # what falls on both is one number
            both = self.steps // lcm(steps, epochs * self.per_epoch)
            partly = self.steps % self.per_epoch and self.epochs % epochs == 0 and self.steps % steps == 0
            count -= both + bool(partly)
        first = tuple(islice(self._upwards(steps, epochs, end), _FIRST))
        last = tuple(islice(self._downwards(steps, epochs, end), _LAST))
        return Done(first, last[::-1], count)

    def calls(self) -> Counter[str]:
        """Return how often hooks are called at each point."""
        counts: Counter[str] = Counter()
        evaluations = self._validation_turns()
        saves = 0
        for actor in self.facts.actors:
            acts = 0
            for point in actor.points:
                number = self._called(actor, point)
                counts[point] += number
                acts += number if point in ("after_step", "after_epoch", "after_train") else 0
            if actor.acting:
                if self._acts_at_end(actor):
                    counts["after_train"] += 1
                    acts += 1
                kind = actor.name.partition("#")[0]
                evaluations += acts * (kind == "Evaluate")
                saves += acts * (kind == "Checkpoint")
        batches = self.facts.eval_batches or 0
        for actor in self.facts.actors:
            for point in actor.points:
                if point in _EVALUATION:
                    counts[point] += evaluations * (batches if point.endswith("_step") else 1)
                elif point == "before_save":
                    counts[point] += saves
        return +counts

    def _called(self, actor: Actor, point: str) -> int:
        """Return how often a hook is called at a point; evaluations and saves are counted by what begins them."""
        if point in STEP_POINTS:
            every = self._interval(actor)
            if point != "before_update":
                return self.steps // every
            group = self.plan.train.accumulate
            ends_early = self.facts.total_steps is not None and self.steps % group and self.steps % every == 0
            return self.steps // lcm(every, group) + bool(ends_early)
        if point in EPOCH_POINTS:
            return self.epochs // self._interval_of_epochs(actor)
        if point == "after_train":
            return 0 if actor.acting else 1
        return 1 if point in ("before_run", "before_train", "after_run") else 0

    def _interval(self, actor: Actor) -> int:
        counts = actor.every is not None and actor.every.unit != "second"
        return max(1, actor.every.steps(self.facts.steps_per_epoch)) if counts and actor.every else 1

    def _interval_of_epochs(self, actor: Actor) -> int:
        return int(actor.every.value) if actor.every is not None and actor.every.unit == "epoch" else 1

    def _every_steps(self, actor: Actor) -> int:
        return self._interval(actor) if "after_step" in actor.points else 0

    def _every_epochs(self, actor: Actor) -> int:
        return self._interval_of_epochs(actor) if "after_epoch" in actor.points else 0

    def _acts_at_end(self, actor: Actor) -> bool:
        """Return whether a hook acts once more at the end, which it has not reached otherwise."""
        if not (actor.acting and actor.at_end and self.steps):
            return False
        steps, epochs = self._every_steps(actor), self._every_epochs(actor)
        return not (steps and self.steps % steps == 0) and not (epochs and self.epochs % epochs == 0)

    def _upwards(self, steps: int, epochs: int, end: bool) -> Iterator[int]:
        by_step = range(steps, self.steps + 1, steps) if steps else ()
        numbers = range(epochs, self.epochs + 1, epochs) if epochs else ()
        by_epoch = (min(n * self.per_epoch, self.steps) for n in numbers)
        yield from _once(merge(by_step, by_epoch, (self.steps,) if end else ()))

    def _downwards(self, steps: int, epochs: int, end: bool) -> Iterator[int]:
        by_step = range(self.steps // steps * steps, 0, -steps) if steps else ()
        newest = self.epochs // epochs * epochs if epochs else 0
        by_epoch = (min(n * self.per_epoch, self.steps) for n in (range(newest, 0, -epochs) if epochs else ()))
        yield from _once(merge(by_step, by_epoch, (self.steps,) if end else (), reverse=True))

    def _validation_turns(self) -> int:
        """Return how many validation epochs a workflow has before its last epoch of training."""
        if self.plan.loop.name != "Workflow":
            return 0
        turns = [mode for mode, count in self.plan.loop.args.get("flow", [("train", 1)]) for _ in range(count)]
        each = turns.count("train")
        if not each or not self.epochs:
            return 0
        cycles, left = divmod(self.epochs - 1, each)
        places = [index for index, mode in enumerate(turns) if mode == "train"]
        return cycles * (len(turns) - each) + places[left] - left


def _once(numbers: Iterator[int]) -> Iterator[int]:
    before = None
    for number in numbers:
        if number != before:
            yield number
        before = number
