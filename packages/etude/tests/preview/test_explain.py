"""The plan is the truth: what ``explain`` tells is what the run then does, event by event, number by number."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude import registry
from etude.build import build
from etude.checkpoint.store import Store
from etude.config.tree import Tree
from etude.core.hook import POINTS, Hook
from etude.core.loop import fit
from etude.core.run import named_hooks
from etude.dialects.native.lower import lower
from etude.hooks.checkpoint import Checkpoint
from etude.preview.explain import Act, done_at, story, timelines
from etude.session.lengths import facts_of
from etude.session.recovery.saver import Saver
from tests.sampling import examples


class Watcher(Hook):
    """Acts at the points it is told, and does nothing there."""

    def __init__(self, points: list[str]) -> None:
        self.points = points

    def calls(self):
        return {point: lambda run: None for point in self.points}


@pytest.fixture(scope="module", autouse=True)
def watcher():
    registry.HOOKS.add("Watcher", Watcher, force=True)


def traced(run, seen: list[Act]) -> None:
    """Let every call of every hook be written down first."""
    for name, hook in named_hooks(run.hooks):
        calls = dict(hook.calls())

        def told(name=name, calls=calls):
            def note(point, call):
                def noted(run):
                    acting = point == "after_train" and getattr(call, "__name__", "") == "_finish"
                    before = len(seen)
                    if not acting:
                        seen.append(Act(run.step, run.epoch, point, name))
                    count = getattr(call, "__self__", None)
                    acted = getattr(count, "_acted_at", None)
                    call(run)
                    if acting and getattr(count, "_acted_at", None) != acted:
                        seen.insert(before, Act(run.step, run.epoch, point, name))

                return noted

            return {point: note(point, call) for point, call in calls.items()}

        hook.calls = told
    run.hooks.compile()


amounts = st.one_of(st.integers(1, 9).map(lambda n: f"{n}step"), st.integers(1, 3).map(lambda n: f"{n}ep"))
watchers = st.fixed_dictionaries(
    {"type": st.just("Watcher"), "points": st.lists(st.sampled_from(POINTS[:14]), unique=True), "priority": st.integers(0, 100)},
    optional={"every": amounts},
)  # fmt: skip


checkpoints = st.fixed_dictionaries({"every": amounts, "keep": st.none(), "save_last": st.booleans()})
weights = st.fixed_dictionaries({"type": st.just("Checkpoint"), "every": amounts, "weights_only": st.just(True)})


@st.composite
def configs(draw):
    by_steps = draw(st.booleans())
    train = {"steps": draw(st.integers(1, 30))} if by_steps else {"epochs": draw(st.integers(1, 4))}
    train |= {"accumulate": draw(st.integers(1, 5)), "validate": draw(amounts), "seed": 1}
    if not by_steps and draw(st.booleans()):
        train["workflow"] = [["train", draw(st.integers(1, 2))], ["val", draw(st.integers(1, 2))]]
    n, batch = draw(st.integers(4, 40)), draw(st.integers(2, 9))
    total = train["steps"] if by_steps else train["epochs"] * -(-n // batch)
    warm = draw(st.integers(1, min(6, total)))
    phases = [{"type": "Linear", "from": draw(st.floats(0.01, 0.9)), "until": f"{warm}step"}, {"type": draw(st.sampled_from(["Cosine", "Poly", "Constant"])), "until": "end"}]  # fmt: skip
    data = {"type": "TensorData", "tensors": None}
    return {
        "model": {"type": "MLP", "sizes": [3, 2]},
        "loss": "CrossEntropyLoss",
        "data": {"train": {"dataset": data, "batch_size": batch}, "val": {"dataset": data, "batch_size": 7}},
        "optim": {"type": draw(st.sampled_from(["SGD", "AdamW"])), "lr": draw(st.floats(1e-4, 0.5)), "groups": [{"match": "*.bias", "lr_mult": 0.5}]},
        "schedule": {"lr": phases} if draw(st.booleans()) else {},
        "train": train,
        "hooks": draw(st.lists(watchers, max_size=4)) + draw(st.lists(weights, max_size=1)),
        "log": {"every": draw(amounts)},
        "checkpoint": draw(st.one_of(st.just(False), checkpoints)),
    }, n  # fmt: skip


def saved_steps(folder):
    """The steps of whole checkpoints (False) and of bare weights (True)."""
    return {
        bare: sorted(int(path.name.partition("-")[2]) for path in Path(folder).glob(f"{word}-*"))
        for bare, word in ((False, "step"), (True, "weights"))
    }


@given(configs())
@settings(max_examples=examples(60))
def test_the_story_of_a_plan_is_what_the_run_does(drawn):
    values, n = drawn
    generator = torch.Generator().manual_seed(0)
    tensors = (torch.randn(n, 3, generator=generator), torch.randint(2, (n,), generator=generator))
    for split in values["data"].values():
        split["dataset"] = {"type": "tests.preview.test_explain.Sixteen", "tensors": tensors}
    plan = lower(Tree(values))
    run = build(plan)
    facts = facts_of(run)
    told = list(story(plan, facts))
    lines = timelines(plan, facts)
    bases = [group["lr"] for group in run.optimizers[""].param_groups]
    seen: list[Act] = []
    rates: list[list[float]] = []
    traced(run, seen)

    class Rates(Hook):
        def after_forward(self, run):
            rates.append([group["lr"] for group in run.optimizers[""].param_groups])

    run.hooks.add(Rates())
    with tempfile.TemporaryDirectory() as folder:
        run.store = Saver(run, Store(folder), print)
        fit(run)
        run.store.close()
        kept = saved_steps(folder)
    assert seen == told
    savers = {hook.weights_only: name for name, hook in named_hooks(run.hooks) if isinstance(hook, Checkpoint)}
    assert kept == {bare: done_at(told, savers.get(bare, "")) for bare in (False, True)}
    for step, row in enumerate(rates):
        expected = [line.value(step, base) for line in lines for base in bases] or bases
        assert row == pytest.approx(expected, rel=1e-12)


class Sixteen(torch.utils.data.TensorDataset):
    """A dataset by dotted path."""

    def __init__(self, tensors) -> None:
        super().__init__(*tensors)
