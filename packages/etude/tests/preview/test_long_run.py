"""Counts of a run, from its period: the same as of the story, which goes through every step."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from etude.plan import Plan, Spec, Training
from etude.preview.explain import Actor, Facts, done_at, story
from etude.preview.long_run import LongRun
from etude.units import Amount

POINTS = (
    "before_run", "before_train", "before_epoch", "before_step", "after_forward", "before_update", "after_step",
    "after_epoch", "before_eval", "before_eval_step", "after_eval_step", "after_eval", "before_save", "after_train",
    "after_run",
)  # fmt: skip
amounts = st.none() | st.builds(Amount, st.integers(1, 7).map(float), st.sampled_from(["step", "epoch", "second"]))
names = st.sampled_from(["Evaluate", "Checkpoint", "Log", "Mine", "Evaluate#2"])
actors = st.builds(
    Actor,
    name=names,
    priority=st.integers(0, 100),
    points=st.lists(st.sampled_from(POINTS), unique=True).map(tuple),
    every=amounts,
    acting=st.booleans(),
    at_end=st.booleans(),
)
flows = st.lists(st.tuples(st.sampled_from(["train", "val"]), st.integers(1, 3)), min_size=1, max_size=3).filter(
    lambda flow: any(mode == "train" for mode, _ in flow)
)


@st.composite
def runs(draw) -> tuple[Plan, Facts]:
    per_epoch = draw(st.integers(1, 6))
    epochs = draw(st.none() | st.integers(1, 9))
    total = draw(st.integers(1, 40)) if epochs is None else draw(st.sampled_from([None, epochs * per_epoch]))
    loop = Spec(kind="loop", name="Workflow", args={"flow": draw(flows)}) if draw(st.booleans()) else Spec(
        kind="loop", name="epochs"
    )  # fmt: skip
    plan = Plan(
        dialect="native",
        model=Spec(kind="model", name="MLP"),
        update=Spec(kind="update", name="Step"),
        loop=loop,
        train=Training(epochs=epochs, steps=None if epochs else total, accumulate=draw(st.integers(1, 4))),
    )
    hooks = draw(st.lists(actors, max_size=4, unique_by=lambda actor: actor.name))
    return plan, Facts(
        steps_per_epoch=per_epoch, total_steps=total, actors=tuple(hooks), eval_batches=draw(st.integers(0, 2))
    )


@given(runs())
def test_the_counts_of_a_run_are_those_of_its_story(run: tuple[Plan, Facts]) -> None:
    plan, facts = run
    acts, long = list(story(plan, facts)), LongRun(plan, facts)
    assert long.calls() == Counter(act.point for act in acts)
    for actor in facts.actors:
        if actor.acting:
            numbers, done = done_at(acts, actor.name), long.done_at(actor)
            assert done.count == len(numbers)
            assert list(done.first) == numbers[:8] and list(done.last) == numbers[-2:]


def test_a_run_of_any_length_is_counted_at_once() -> None:
    plan = Plan(
        dialect="native",
        model=Spec(kind="model", name="MLP"),
        update=Spec(kind="update", name="Step"),
        loop=Spec(kind="loop", name="epochs"),
        train=Training(epochs=10**300),
    )
    save = Actor(name="Checkpoint", priority=50, points=("after_step",), every=Amount(1.0, "step"), acting=True)
    long = LongRun(plan, Facts(steps_per_epoch=3, total_steps=3 * 10**300, actors=(save,)))
    done = long.done_at(save)
    assert done.count == 3 * 10**300 and done.last == (3 * 10**300 - 1, 3 * 10**300)
