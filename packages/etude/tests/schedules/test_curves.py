"""Curves against torch's schedulers, and properties that hold for all of them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler as torch_schedules

from etude.errors import ConfigError
from etude.schedules import curves
from etude.schedules.curves import Window, by_share

STEPS, EPOCH = 40, 8


def ours(curve, steps: int = STEPS) -> list[float]:
    window = Window(0, steps, EPOCH)
    factor = curve.prepare(window) if hasattr(curve, "prepare") else by_share(curve, window)
    return [factor(step) for step in range(steps)]


def theirs(make, steps: int = STEPS) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    schedule, seen = make(optimizer), []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


@pytest.mark.parametrize(
    ("curve", "make"),
    [
        (curves.Constant(0.3), lambda o: torch_schedules.ConstantLR(o, 0.3, 100)),
        (curves.Linear(0.1, 1.0), lambda o: torch_schedules.LinearLR(o, 0.1, 1.0, STEPS)),
        (curves.Step("1ep", 0.5), lambda o: torch_schedules.StepLR(o, EPOCH, 0.5)),
        (curves.MultiStep([5, "2ep"], 0.1), lambda o: torch_schedules.MultiStepLR(o, [5, 16], 0.1)),
        (curves.Exponential(gamma=0.9, every=1), lambda o: torch_schedules.ExponentialLR(o, 0.9)),
        (curves.Poly(power=2.0), lambda o: torch_schedules.PolynomialLR(o, STEPS, 2.0)),
        (curves.Cosine(to=0.1), lambda o: torch_schedules.CosineAnnealingLR(o, STEPS, 0.1)),
        (curves.CosineRestarts(5), lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 5)),
        (curves.CosineRestarts(5, grow=2), lambda o: torch_schedules.CosineAnnealingWarmRestarts(o, 5, 2)),
        (
            curves.Cyclic(10, from_=0.2, rise=0.4),
            lambda o: torch_schedules.CyclicLR(o, 0.2, 1.0, 4, 6, cycle_momentum=False),
        ),
        (
            curves.Cyclic(10, from_=0.2, shrink=0.5),
            lambda o: torch_schedules.CyclicLR(o, 0.2, 1.0, 5, 5, mode="triangular2", cycle_momentum=False),
        ),
        (
            curves.OneCycle(rise=0.25),
            lambda o: torch_schedules.OneCycleLR(o, 1.0, STEPS + 1, pct_start=11 / (STEPS + 1), cycle_momentum=False),
        ),
        (
            curves.OneCycle(rise=0.25, shape="linear"),
            lambda o: torch_schedules.OneCycleLR(
                o, 1.0, STEPS + 1, pct_start=11 / (STEPS + 1), anneal_strategy="linear", cycle_momentum=False
            ),
        ),
        (curves.Inverse(4), lambda o: torch_schedules.LambdaLR(o, lambda s: math.sqrt(4 / (4 + s)))),
        (curves.Inverse(2, power=1.0), lambda o: torch_schedules.LambdaLR(o, lambda s: 1 / (1 + s / 2))),
    ],
    ids=lambda value: type(value).__name__ if not callable(value) or hasattr(value, "from_") else "",
)
def test_curves_agree_with_those_of_torch(curve, make):
    assert ours(curve) == pytest.approx(theirs(make), abs=1e-7)


def test_three_kinds_of_warmup_rise_to_the_base_value():
    constant, linear, exponential = curves.Constant(0.1), curves.Linear(0.1), curves.Exponential(0.1, to=1.0)
    assert [constant(at) for at in (0.0, 0.5, 1.0)] == [0.1, 0.1, 0.1]
    assert [linear(at) for at in (0.0, 0.5, 1.0)] == pytest.approx([0.1, 0.55, 1.0])
    assert [exponential(at) for at in (0.0, 0.5, 1.0)] == pytest.approx([0.1, math.sqrt(0.1), 1.0])


def test_flat_cosine_and_warmup_stable_decay_have_level_middles():
    flat = ours(curves.FlatCosine(0.5, to=0.2))
    assert flat[:21] == [1.0] * 21 and flat[30] == pytest.approx(0.6)
    three = ours(curves.WarmupStableDecay("1ep", 0.25, from_=0.5))
    assert three[0] == 0.5 and three[4] == 0.75 and three[8:31] == [1.0] * 23
    assert three[35] == pytest.approx(0.5) and three[39] == pytest.approx(0.1)


SHARES = [
    curves.Linear(0.2, 0.9), curves.Poly(1.0, 0.1, 3.0), curves.Cosine(0.9, 0.3), curves.Exponential(0.01, to=2.0),
    curves.FlatCosine(0.3, 1.0, 0.2), curves.OneCycle(0.1, 1.0, 0.01, 0.4, "sqrt"),
]  # fmt: skip


@given(curve=st.sampled_from(SHARES), length=st.integers(1, 1000), data=st.data())
def test_a_curve_starts_and_arrives_where_it_says_and_stays_between(curve, length, data):
    factor = curve.prepare(Window(0, length)) if hasattr(curve, "prepare") else by_share(curve, Window(0, length))
    assert factor(0) == pytest.approx(curve.from_)
    assert factor(length) == pytest.approx(curve.to)
    values = (curve.from_, curve.to, getattr(curve, "peak", curve.to))
    assert min(values) - 1e-9 <= factor(data.draw(st.integers(0, length))) <= max(values) + 1e-9


@given(every=st.integers(1, 50), grow=st.floats(1.0, 3.0), shrink=st.floats(0.3, 1.0), step=st.integers(0, 5000))
def test_restarts_stay_between_their_ends(every, grow, shrink, step):
    factor = curves.CosineRestarts(every, grow=grow, shrink=shrink, to=0.1).prepare(Window(0, None))
    assert min(0.1, shrink**20 * 0) <= factor(step) <= 1.0
    assert factor(0) == 1.0


@given(
    values=st.lists(st.floats(0, 10), max_size=60),
    mode=st.sampled_from(["min", "max"]),
    patience=st.integers(0, 3),
    cooldown=st.integers(0, 3),
)
def test_plateau_agrees_with_that_of_torch_also_when_it_is_continued(values, mode, patience, cooldown):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    theirs = torch_schedules.ReduceLROnPlateau(optimizer, mode, 0.5, patience, cooldown=cooldown, min_lr=0.01, eps=0)
    options = {"mode": mode, "gamma": 0.5, "patience": patience, "cooldown": cooldown, "to": 0.01}
    plateau = curves.Plateau(**options)
    for value in values:
        theirs.step(value)
        plateau.observe(value)
        assert plateau.factor == pytest.approx(optimizer.param_groups[0]["lr"])
        again = curves.Plateau(**options)
        again.load_state_dict(plateau.state_dict())
        plateau = again


def test_a_nan_is_never_the_best():
    plateau = curves.Plateau(patience=0)
    plateau.observe(float("nan"))
    plateau.observe(1.0)
    assert plateau.best == 1.0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: curves.Exponential(), "either `to` or `gamma`"),
        (lambda: curves.Exponential(0.0, to=1.0), "more than zero"),
        (lambda: curves.OneCycle(rise=1.5), "between 0 and 1"),
        (lambda: curves.OneCycle(shape="cosin"), "did you mean 'cosine'"),
        (lambda: curves.Plateau(mode="mim"), "did you mean 'min'"),
        (lambda: curves.CosineRestarts(5, grow=0.5), "at least 1"),
        (lambda: ours(curves.WarmupStableDecay(30, 30)), "do not fit into 40 steps"),
        (lambda: ours(curves.Step("x")), "not an amount"),
        (lambda: by_share(curves.Cosine(), Window()), "needs to know when it ends"),
    ],
)
def test_what_a_curve_cannot_do_is_said(make, says):
    with pytest.raises(ConfigError, match=says):
        make()


def test_warmup_and_decay_may_take_the_whole_run_and_no_step_more():
    factor = curves.WarmupStableDecay(warmup="4step", decay="6step").prepare(Window(0, 10, None))
    assert [factor(step) for step in (0, 2, 4, 7)] == pytest.approx([0.0, 0.5, 1.0, 0.5])
    with pytest.raises(ConfigError, match="warmup 5 and decay 6 do not fit into 10 steps"):
        curves.WarmupStableDecay(warmup="5step", decay="6step").prepare(Window(0, 10, None))


def test_a_curve_has_its_level_exactly_from_the_first_step_of_the_level_to_its_last():
    assert curves.FlatCosine(0.5, from_=0.1, to=3.0)(0.5) == 0.1
    factor = curves.WarmupStableDecay(warmup="3step", decay="3step", from_=0.3).prepare(Window(0, 10, None))
    assert [factor(step) for step in (3, 7)] == [1.0, 1.0] and factor(2) < 1.0 > factor(8) and factor(12) == 0.0
    factor = curves.WarmupStableDecay(warmup=0, decay="2step").prepare(Window(0, 10, None))
    assert factor(0) == 1.0 and factor(9) == 0.5


@pytest.mark.parametrize(
    ("amount", "steps"), [(0, 0), (0.0, 0), (0.5, 5), (0.99, 10), (1, 1), ("2step", 2), ("1ep", 4)]
)
def test_a_number_below_one_is_a_share_of_the_phase_and_others_are_amounts(amount, steps):
    assert curves.WarmupStableDecay._steps(amount, Window(0, 10, 4), 10) == steps


def test_restarts_of_one_length_begin_lower_each_time():
    factor = curves.CosineRestarts(every=4, shrink=0.5).prepare(Window(0, 12, None))
    assert [factor(step) for step in (0, 3, 4, 8, 11)] == pytest.approx(
        [1.0, 0.1464466, 0.5, 0.25, 0.0366117], abs=1e-6
    )


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_lies_between_zero_and_one(share):
    for make in (lambda: curves.OneCycle(rise=share), lambda: curves.Cyclic(4, rise=share), lambda: curves.FlatCosine(share)):  # fmt: skip
        with pytest.raises(ConfigError, match="must be between 0 and 1"):
            make()


@pytest.mark.parametrize("options", [{"from_": 0.0, "gamma": 0.5}, {"to": 0.0}, {"from_": -1.0, "to": 1.0}])
def test_equal_ratios_need_ends_above_zero(options):
    with pytest.raises(ConfigError, match="must be more than zero"):
        curves.Exponential(**options)
    with pytest.raises(ConfigError, match="either `to` or `gamma`"):
        curves.Exponential(to=0.5, gamma=0.5)


@pytest.mark.parametrize(("mode", "values"), [("min", (10.0, 9.0, 8.9)), ("max", (-10.0, -9.0, -8.9))])
def test_a_plateau_wants_an_improvement_by_a_share_of_the_best(mode, values):
    first, same, better = values
    plateau = curves.Plateau(mode=mode, threshold=0.1, patience=5)
    for value, best in ((first, first), (same, first), (better, better)):
        plateau.observe(value)
        assert plateau.best == best
    assert plateau.waited == 0


def test_a_plateau_waits_longer_than_its_patience_and_starts_to_wait_anew_after_it():
    plateau = curves.Plateau(gamma=0.5, patience=2, to=0.2)
    factor = plateau.prepare(Window())
    seen = []
    for _ in range(11):
        plateau.observe(1.0)
        seen.append(factor(0))
    assert seen == [1.0] * 3 + [0.5] * 3 + [0.25] * 3 + [0.2] * 2


def test_a_plateau_that_cools_down_does_not_wait():
    plateau = curves.Plateau(gamma=0.5, patience=0, cooldown=2)
    seen = []
    for _ in range(6):
        plateau.observe(1.0)
        seen.append((plateau.factor, plateau.cooling, plateau.waited))
    assert seen == [(1.0, 0, 0), (0.5, 2, 0), (0.5, 1, 0), (0.5, 0, 0), (0.25, 2, 0), (0.25, 1, 0)]


def test_a_phase_without_steps_is_at_its_end():
    assert by_share(curves.Linear(0.2, 0.8), Window(5, 0))(0) == pytest.approx(0.8)


@pytest.mark.parametrize(("shape", "middle"), [("linear", 0.5), ("cosine", 0.5), ("sqrt", 1.0 - math.sqrt(0.5))])
def test_the_decay_at_the_end_has_the_shape_that_is_asked_for(shape, middle):
    factor = curves.WarmupStableDecay(0, "4step", shape=shape).prepare(Window(0, 10))
    assert [factor(step) for step in (6, 8, 10, 11)] == pytest.approx([1.0, middle, 0.0, 0.0])


def test_shapes_lead_from_one_value_to_another():
    for name, quarter in (("linear", 2.5), ("sqrt", 3.0), ("cosine", 2.0 + 1.0 - math.sqrt(0.5))):
        between = curves.shape_of(name)
        assert [between(2.0, 4.0, at) for at in (0.0, 0.25, 1.0)] == pytest.approx([2.0, quarter, 4.0])


def test_growing_restarts_begin_again_at_the_sum_of_their_lengths():
    factor = curves.CosineRestarts(every=2, grow=2.0, shrink=0.5, to=0.1).prepare(Window())
    assert [factor(step) for step in (0, 2, 6, 14)] == pytest.approx([1.0, 0.5, 0.25, 0.125])
    assert [factor(step) for step in (1, 4, 10)] == pytest.approx([0.55, 0.3, 0.175])


def test_factors_of_steps_begin_at_from():
    assert ours(curves.Step(3, 0.5, from_=4.0), 7) == [4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 1.0]
    assert ours(curves.MultiStep([2, 4], 0.5, from_=4.0), 5) == [4.0, 4.0, 2.0, 2.0, 1.0]
    assert ours(curves.Exponential(4.0, gamma=0.25, every=2), 5) == [4.0, 2.0, 1.0, 0.5, 0.25]
    assert ours(curves.Inverse(1, power=1.0, from_=5.0, to=1.0), 4) == pytest.approx([5.0, 3.0, 7 / 3, 2.0])
