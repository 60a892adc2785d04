"""What of a run is collected into a checkpoint, and what a run says that takes it up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from etude.checkpoint.state import collect, generators_for, needed, restore
from etude.core.hook import Hook, HookTable
from etude.core.run import Run
from etude.dist.world import World
from etude.errors import ResumeError

from .test_plan_changes import PLAN


class Count(Hook):
    count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Any) -> None:
        self.count = state["count"]


class Other(Count):
    pass


def a_run(*hooks: Hook, **fields: Any) -> Run:
    torch.manual_seed(0)
    return Run(torch.nn.Linear(2, 1), update=None, loop=lambda run: None, hooks=HookTable(hooks), **fields)


def test_everything_that_was_collected_is_restored() -> None:
    hook, said = Count(), []
    run = a_run(hook, step=5)
    hook.count = 3
    state = collect(run)
    assert state["plan"] == {} and set(state) >= {"model", "counters", "events", "generators", "hook.Count"}
    fresh = Count()
    other = a_run(fresh)
    torch.nn.init.zeros_(other.model.weight)
    restore(other, state, say=said.append)
    assert torch.equal(other.model.weight, run.model.weight) and (fresh.count, other.step) == (3, 5) and said == []
    assert needed(run) == ["model", "counters", "generators"]


def test_a_part_without_a_state_is_refused_unless_the_plan_did_not_have_it_or_it_may_be_new() -> None:
    said: list[str] = []
    state = collect(a_run(Count()))
    with pytest.raises(
        ResumeError, match=r"no state of hook\.Other; --allow-change hook\.Other begins with a fresh one"
    ):
        restore(a_run(Count(), Other()), state, say=said.append)
    assert said == []
    for allow in (["Other"], ["hook.Other"], ["x", "all"]):
        restore(a_run(Count(), Other()), state, say=said.append, allow=allow)
    restore(a_run(Count(), Other()), {**state, "plan": {"hooks.Count.every": 1}}, say=said.append)
    assert said == ["hook.Other was not part of the run before and starts fresh"] * 4
    with pytest.raises(ResumeError, match=r"no state of hook\.Count#2"):
        restore(a_run(Count(), Count()), {**state, "plan": {"hooks.Count.every": 1}}, say=said.append)
    del state["counters"]
    with pytest.raises(ResumeError, match="no state of counters"):
        restore(a_run(Count()), {**state, "plan": {"hooks.Count.every": 1}}, say=said.append)


def test_a_state_that_nobody_wants_any_more_is_reported() -> None:
    said: list[str] = []
    state = {**collect(a_run(Count())), "interrupted": {}, "batch": {}, "ranks": {}}
    restore(a_run(), state, say=said.append)
    assert said == ["the stored state of hook.Count is not used: the run has no such part any more"]


def test_a_state_that_does_not_fit_is_refused_with_the_name_of_its_part() -> None:
    state = collect(a_run(Count()))
    with pytest.raises(ResumeError, match=r"does not fit hook\.Count: KeyError: 'count'"):
        restore(a_run(Count()), {**state, "hook.Count": {}}, say=print)
    with pytest.raises(ResumeError, match="does not fit the model:\n"):
        restore(a_run(Count()), {**state, "model": {"weight": torch.ones(3)}}, say=print)


def test_each_rank_gets_its_own_generators_and_a_new_one_those_of_nobody() -> None:
    state = {"generators": {"main": 0}, "ranks": {"generators": [{"rank": 0}, {"rank": 1}]}}
    given = [generators_for(a_run(world=World(rank=rank, size=3)), state) for rank in range(3)]
    assert given == [{"rank": 0}, {"rank": 1}, None]
    alone = {"generators": {"main": 0}}
    assert generators_for(a_run(), alone) == {"main": 0}
    assert generators_for(a_run(world=World(rank=1, size=2)), alone) is None


def test_the_facts_of_a_plan_are_those_of_this_plan() -> None:
    longer = replace(PLAN, train=replace(PLAN.train, epochs=9))
    seen = [collect(a_run(plan=plan))["plan"]["train.epochs"] for plan in (PLAN, longer, PLAN)]
    assert seen == [3, 9, 3]


class Update:
    def __init__(self, grads: dict[str, Any]) -> None:
        self.grads = grads

    def state_dict(self) -> dict[str, Any]:
        return {"grads": self.grads, "count": 1}

    def load_state_dict(self, state: Any) -> None:
        raise NotImplementedError


def test_several_ranks_save_their_own_gradients_and_generators() -> None:
    def collected(grads: dict[str, Any], **fields: Any) -> dict[str, Any]:
        run = a_run(world=World(rank=1, size=2), **fields)
        run.update = Update(grads)
        return collect(run)

    grad = torch.ones(3)
    state = collected({"0": grad}, peers=object())
    piece = state["update"]["grads"]["0"]
    assert (piece.shape, piece.offset, piece.local.shape) == ((2, 3), (1, 0), (1, 3)) and state["update"]["count"] == 1
    assert generators_for(a_run(), state) == state["ranks"]["generators"][0] == state["generators"]
    assert collected({"0": piece}, peers=object())["update"]["grads"]["0"] is piece
    assert collected({}, peers=object())["update"] == {"grads": {}, "count": 1}
    alone = collected({"0": grad})
    assert alone["update"]["grads"]["0"] is grad and "ranks" not in alone


def test_a_run_of_several_ranks_without_an_update_is_collected() -> None:
    assert "update" not in collect(a_run(peers=object()))
