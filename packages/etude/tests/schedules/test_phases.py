"""Phases: windows, chains, by epoch or by step."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude import registry
from etude.errors import ConfigError
from etude.plan import Phase, Place, Schedule, Spec
from etude.registry import SCHEDULES
from etude.schedules.curves import Cosine
from etude.schedules.phases import resolve, sample, schedules_from
from etude.units import parse

registry.load_builtins()


def phase(name: str, until: str | None = None, begin: str | None = None, by: str = "step", **args) -> Phase:
    spec = Spec(kind="schedule", name=name, args=args, at=Place("train.yaml", 7))
    return Phase(curve=spec, begin=parse(begin) if begin else None, until=parse(until) if until else None, by=by)


def timeline(*phases: Phase, total: int | None = 100, epoch: int | None = 10):
    return resolve(Schedule(target="lr", phases=phases), steps_per_epoch=epoch, total_steps=total)


def test_a_chain_takes_over_where_the_phase_before_arrived():
    lr = timeline(phase("Linear", "1ep", **{"from": 0.01}), phase("Cosine"))
    assert lr.value(0, 0.1) == pytest.approx(0.001)
    assert lr.value(10, 0.1) == pytest.approx(0.1)
    assert lr.value(55, 0.1) == pytest.approx(0.05)
    assert lr.value(100, 0.1) == pytest.approx(0.0)


def test_a_window_leaves_the_base_value_before_it_and_its_own_after_it():
    lr = timeline(phase("Linear", "30step", begin="20step", **{"from": 1.0, "to": 0.5}), phase("Constant", begin="5ep"))
    assert [lr.factor(step) for step in (0, 19, 25, 30, 49, 50)] == [1.0, 1.0, 0.75, 0.5, 0.5, 1.0]


def test_by_epoch_the_value_changes_at_the_start_of_epochs_only():
    lr = timeline(phase("Linear", "5ep", by="epoch", **{"from": 1.0, "to": 0.0}))
    assert [lr.factor(step) for step in (0, 9, 10, 19, 49, 50)] == pytest.approx([1.0, 1.0, 0.8, 0.8, 0.2, 0.0])


def test_milestones_count_from_the_start_of_the_run():
    lr = timeline(phase("Linear", "10step"), phase("MultiStep", at=["30step", "5ep"]))
    assert [lr.factor(step) for step in (10, 29, 30, 50)] == pytest.approx([1.0, 1.0, 0.1, 0.01])


def test_a_function_of_the_user_is_a_curve():
    @SCHEDULES.register("halfway", force=True)
    def halfway(at: float, low: float = 0.5) -> float:
        return 1.0 if at < 0.5 else low

    assert [timeline(phase("halfway", low=0.2)).factor(step) for step in (0, 49, 50)] == [1.0, 1.0, 0.2]


@given(
    ends=st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True),
    base=st.floats(1e-6, 10),
    step=st.integers(0, 120),
)
def test_every_step_belongs_to_exactly_one_phase(ends, base, step):
    ends = sorted(ends)
    lr = timeline(*(phase("Constant", f"{end}step", factor=float(number)) for number, end in enumerate(ends)))
    expected = next((number for number, end in enumerate(ends) if step < end), len(ends) - 1)
    assert lr.value(step, base) == base * expected


def test_a_run_of_unknown_length_may_have_curves_that_need_none():
    assert timeline(phase("Inverse", scale=5), total=None).factor(15) == 0.5
    assert timeline(phase("Step", every=5, gamma=0.5), total=None, epoch=None).factor(12) == 0.25


@pytest.mark.parametrize(
    ("phases", "total", "epoch", "says"),
    [
        ([phase("Cosine")], None, 10, "needs to know when it ends"),
        ([phase("Constant"), phase("Cosine")], None, 10, "lasts until the end"),
        ([phase("Constant", "5ep"), phase("Cosine", begin="3ep")], 100, 10, "begins at step 30, before"),
        ([phase("Constant", "1ep", begin="2ep")], 100, 10, "ends at step 10, before it begins"),
        ([phase("Linear", "1ep")], 100, None, "dataset with a length"),
        ([phase("Linear", by="epoch")], 100, None, "dataset with a length"),
        ([phase("Cosin")], 100, 10, "did you mean 'Cosine'"),
        ([phase("Cosine", form=1)], 100, 10, "form"),
        ([phase("OneCycle", rise=3.0)], 100, 10, "between 0 and 1"),
    ],
)
def test_mistakes_are_told_with_their_place(phases, total, epoch, says):
    with pytest.raises(ConfigError, match=says) as caught:
        timeline(*phases, total=total, epoch=epoch)
    assert "train.yaml:7" in str(caught.value)


def test_a_drawing_has_the_first_and_the_last_step():
    points = sample(timeline(phase("Linear")), 2.0, 100, points=5)
    assert points[0] == (0, 0.0) and points[-1][0] == 99 and len(points) == 5
    assert sample(timeline(phase("Linear")), 1.0, 1) == [(0, 0.0)]
    assert [step for step, _ in sample(timeline(phase("Linear")), 1.0, 101, points=3)] == [0, 50, 100]


def test_schedules_need_no_torch():
    code = "import sys, etude.schedules.phases, etude.registry as b; b.load_builtins(); "
    code += "from etude.registry import SCHEDULES; SCHEDULES.get('Cosine'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_schedules_are_written_as_curves_names_pairs_and_mappings():
    curve = Cosine()
    (one,) = schedules_from([(curve, "5ep"), "Linear", {"type": "Poly", "power": 2, "until": "3step"}, (curve, "end")])
    assert one.target == "lr" and [str(phase.until) for phase in one.phases] == ["5ep", "None", "3step", "None"]
    assert one.phases[0].curve is curve and one.phases[1].curve.name == "Linear"
    assert (one.phases[2].curve.name, one.phases[2].curve.args) == ("Poly", {"power": 2})
    (single,) = schedules_from({"type": "Linear"})
    assert single.target == "lr" and single.phases[0].curve.args == {}
    assert [each.target for each in schedules_from({"lr": curve, "momentum": "Linear"})] == ["lr", "momentum"]
    assert schedules_from(lambda at: at)[0].phases[0].until is None
    with pytest.raises(ConfigError, match="3 is not a curve"):
        schedules_from(3)


@pytest.mark.parametrize(
    ("steps", "points", "chosen"),
    [(0, 5, []), (1, 5, [0]), (3, 5, [0, 1, 2]), (101, 5, [0, 25, 50, 75, 100]), (9, 1, [0]), (9, 2, [0, 8])],
)
def test_a_curve_is_sampled_from_its_first_step_to_its_last(steps, points, chosen):
    class Line:
        def value(self, step: int, base: float) -> float:
            return base * step

    assert sample(Line(), 2.0, steps, points=points) == [(step, 2.0 * step) for step in chosen]


def test_by_epoch_a_phase_that_begins_within_an_epoch_starts_at_its_own_start():
    lr = timeline(phase("Linear", "45step", begin="25step", by="epoch", **{"from": 1.0, "to": 0.0}))
    assert [lr.factor(step) for step in (25, 29, 30, 39, 40, 44)] == pytest.approx([1.0, 1.0, 0.75, 0.75, 0.25, 0.25])


def test_phases_may_touch_and_be_empty():
    lr = timeline(phase("Constant", "10step", factor=0.5), phase("Linear", "10step", begin="10step"), phase("Constant"))
    assert [lr.factor(step) for step in (9, 10, 11)] == [0.5, 1.0, 1.0]


def test_a_timeline_knows_its_pieces_and_the_curves_that_react():
    lr = timeline(phase("Linear", "10step"), phase("Plateau"))
    assert [(piece.begin, piece.end, piece.name) for piece in lr.pieces] == [(0, 10, "Linear"), (10, 100, "Plateau")]
    assert [type(curve).__name__ for curve in lr.reactive] == ["Plateau"]
    (written,) = schedules_from(Cosine())
    assert [piece.name for piece in resolve(written, steps_per_epoch=None, total_steps=4).pieces] == ["Cosine"]
