"""Parameter schedulers: what they refuse, what they keep, and how they play together."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.dialects import imports

imports.install()

from mmengine.logging import MMLogger  # noqa: E402
from mmengine.optim import (  # noqa: E402
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingMomentum,
    ExponentialLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    OptimWrapper,
    PolyLR,
    ReduceOnPlateauLR,
    StepLR,
    _ParamScheduler,
)
from mmengine.optim.scheduler import CosineRestartLR, OneCycleParamScheduler, StepParamScheduler  # noqa: E402
from mmengine.registry import PARAM_SCHEDULERS  # noqa: E402
from tests.sampling import examples  # noqa: E402


def make_optimizer(lr: float = 0.05, kind: Any = torch.optim.SGD, groups: int = 1, **options: Any) -> Any:
    params = [{"params": [torch.nn.Parameter(torch.zeros(1))]} for _ in range(groups)]
    options = {"momentum": 0.9, **options} if kind is torch.optim.SGD else options
    return kind(params, lr=lr, **options)


def values(scheduler: Any, steps: int, key: str = "lr") -> list[float]:
    found = []
    for _ in range(steps):
        found.append(scheduler.optimizer.param_groups[0][key])
        scheduler.optimizer.step()
        scheduler.step()
    return found


def test_the_base_class_gives_no_values() -> None:
    with pytest.raises(NotImplementedError):
        _ParamScheduler(make_optimizer(), param_name="lr")


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match="should be an Optimizer"):
        StepLR("invalid_optimizer", step_size=1)


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match="end should be larger than begin"):
        StepLR(make_optimizer(), gamma=0.1, step_size=3, begin=10, end=5)


def test_resuming_needs_the_initial_values_in_the_groups() -> None:
    with pytest.raises(KeyError, match="param 'initial_lr' is not specified"):
        StepLR(make_optimizer(), gamma=0.1, step_size=3, last_step=1)


def test_a_scheduler_that_steps_before_the_optimizer_is_warned_of() -> None:
    scheduler = StepLR(make_optimizer(), gamma=0.1, step_size=3)
    with pytest.warns(UserWarning, match="how-to-adjust-learning-rate"):
        scheduler.step()


def test_a_step_that_was_replaced_is_warned_of() -> None:
    optimizer = make_optimizer()
    scheduler = ExponentialLR(optimizer, gamma=0.9)
    optimizer.step = lambda: None
    optimizer.step()
    with pytest.warns(UserWarning, match="how-to-adjust-learning-rate"):
        scheduler.step()


def test_counters_and_last_values() -> None:
    scheduler = StepLR(make_optimizer(), gamma=0.1, step_size=3)
    assert scheduler.last_step == 0
    steps, last = [], []
    for _ in range(5):
        last.append(scheduler.get_last_value()[0])
        scheduler.optimizer.step()
        scheduler.step()
        steps.append(scheduler.last_step)
    assert steps == [1, 2, 3, 4, 5]
    assert last == pytest.approx([0.05] * 3 + [0.005] * 2)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda o: ConstantLR(o, factor=0.5, end=5), [0.025] * 4 + [0.05] * 3),
        (lambda o: StepLR(o, 3), [0.05] * 3 + [0.005] * 3 + [0.0005]),
        (lambda o: MultiStepLR(o, [2, 5]), [0.05] * 2 + [0.005] * 3 + [0.0005] * 2),
        (lambda o: ExponentialLR(o, 0.9), [0.05 * 0.9**i for i in range(7)]),
        (lambda o: LinearLR(o, start_factor=0.5, end=5), [0.05 * f for f in (0.5, 0.625, 0.75, 0.875, 1, 1, 1)]),
        (lambda o: PolyLR(o, eta_min=0.001, power=0.9, end=7), [0.049 * (1 - i / 6) ** 0.9 + 0.001 for i in range(7)]),
        (lambda o: CosineAnnealingLR(o, T_max=7), [0.025 * (1 + math.cos(math.pi * i / 7)) for i in range(7)]),
        (
            lambda o: CosineRestartLR(o, periods=[4, 3], restart_weights=[1, 0.5], eta_min=0.0),
            [0.025 * (1 + math.cos(math.pi * i / 4)) for i in range(4)]
            + [0.0125 * (1 + math.cos(math.pi * i / 3)) for i in range(3)],
        ),
    ],
)
def test_recurrences_follow_their_closed_forms(make: Any, expected: list[float]) -> None:
    assert values(make(make_optimizer()), 7) == pytest.approx(expected, rel=1e-9)


@given(st.integers(2, 60), st.floats(0.01, 1), st.floats(0.01, 1))
@settings(max_examples=examples(30))
def test_a_line_reaches_its_end_in_the_last_step_of_its_window(length: int, start: float, end: float) -> None:
    found = values(LinearLR(make_optimizer(1.0), start_factor=start, end_factor=end, end=length), length + 3)
    assert found[0] == pytest.approx(start)
    assert found[length - 1 :] == pytest.approx([end] * 4, rel=1e-6)


@given(st.floats(0.1, 0.99), st.floats(0.1, 0.99), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=examples(20))
def test_schedulers_that_overlap_multiply(one: float, other: float, begin: int, late: int) -> None:
    optimizer = make_optimizer(1.0)
    schedulers = [ExponentialLR(optimizer, one, begin=begin), ExponentialLR(optimizer, other, begin=late)]
    for step in range(12):
        expected = one ** max(0, step - begin) * other ** max(0, step - late)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-9)
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()


def test_one_cycle_is_for_learning_rates_alone() -> None:
    with pytest.raises(AssertionError, match="weight_decay"):
        OneCycleParamScheduler(make_optimizer(), param_name="weight_decay", eta_max=0.1, total_steps=10)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda o: ConstantLR(o, factor=99),
        lambda o: LinearLR(o, start_factor=10),
        lambda o: LinearLR(o, end_factor=-1),
        lambda o: OneCycleLR(o, eta_max=2, total_steps=-1),
        lambda o: OneCycleLR(o, eta_max=2, total_steps=10, pct_start=-1),
        lambda o: OneCycleLR(o, eta_max=2, total_steps=10, anneal_strategy="a"),
        lambda o: OneCycleLR(o, eta_max=[1, 2], total_steps=10),
        lambda o: ReduceOnPlateauLR(o, factor=2.0),
        lambda o: ReduceOnPlateauLR(o, min_value=[0.1, 0.1, 0.1, 0.1]),
        lambda o: ReduceOnPlateauLR(o, threshold=-1.0),
        lambda o: ReduceOnPlateauLR(o, rule="foo"),
        lambda o: ReduceOnPlateauLR(o, threshold_rule="foo"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        wrong(make_optimizer())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda o: CosineAnnealingLR(o, eta_min=0.1, eta_min_ratio=0.1),
        lambda o: CosineRestartLR(o, periods=[1, 2], restart_weights=[1], eta_min=0),
        lambda o: ReduceOnPlateauLR(o, by_epoch=False),
        lambda o: ReduceOnPlateauLR(o, last_step=-2),
        lambda o: StepLR.build_iter_from_epoch(o, step_size=2, epoch_length=-1),
        lambda o: StepLR.build_iter_from_epoch(o, step_size=2, by_epoch=False, epoch_length=3),
    ],
)
def test_contradictions_are_refused(wrong: Any) -> None:
    with pytest.raises(AssertionError):
        wrong(make_optimizer())


def test_epochs_become_iterations() -> None:
    by_epoch = MultiStepLR(make_optimizer(), [1, 3], begin=1, end=5)
    per_iteration = MultiStepLR.build_iter_from_epoch(
        make_optimizer(), milestones=[1, 3], begin=1, end=5, epoch_length=4
    )
    assert not per_iteration.by_epoch
    expected = [value for value in values(by_epoch, 6) for _ in range(4)]
    assert values(per_iteration, 24) == pytest.approx(expected)


def test_a_registry_builds_the_converted_scheduler() -> None:
    cfg = {"type": "LinearLR", "start_factor": 0.1, "end": 2, "convert_to_iter_based": True}
    scheduler = PARAM_SCHEDULERS.build(cfg, default_args={"optimizer": make_optimizer(), "epoch_length": 10})
    assert (scheduler.end, scheduler.by_epoch) == (20, False)
    plain = PARAM_SCHEDULERS.build(
        {"type": "StepLR", "step_size": 1}, default_args={"optimizer": make_optimizer(), "epoch_length": 10}
    )
    assert plain.by_epoch


@pytest.mark.parametrize(
    "make",
    [
        lambda o, x: StepLR(o, step_size=x),
        lambda o, x: LinearLR(o, start_factor=0.5, end=x),
        lambda o, x: MultiStepLR(o, [x, 2 * x]),
        lambda o, x: CosineAnnealingLR(o, T_max=x, end=20),
        lambda o, x: OneCycleLR(o, eta_max=0.1 * x, total_steps=20),
    ],
)
def test_a_state_makes_another_scheduler_the_same(make: Any) -> None:
    one, other = make(make_optimizer(), 3), make(make_optimizer(), 7)
    values(one, 5)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    state, loaded = vars(one), vars(other)
    assert "optimizer" not in one.state_dict()
    assert {k: v for k, v in state.items() if k != "optimizer"} == {k: v for k, v in loaded.items() if k != "optimizer"}


def test_momentum_of_the_adam_family_is_its_first_beta() -> None:
    optimizer = make_optimizer(0.01, torch.optim.Adam, betas=(0.9, 0.99))
    values(CosineAnnealingMomentum(optimizer, T_max=4, eta_min=0.5), 2)
    assert optimizer.param_groups[0]["betas"] == (pytest.approx(0.7), 0.99)


def test_any_entry_can_be_scheduled() -> None:
    optimizer = make_optimizer(weight_decay=0.1)
    assert values(StepParamScheduler(optimizer, "weight_decay", 2, gamma=0.5), 5, "weight_decay") == pytest.approx(
        [0.1, 0.1, 0.05, 0.05, 0.025]
    )


def test_a_plateau_reduces_after_patience_and_waits_through_the_cooldown() -> None:
    optimizer = make_optimizer(1.0)
    scheduler = ReduceOnPlateauLR(optimizer, monitor="loss", factor=0.5, patience=1, cooldown=1, min_value=0.2)
    rates = []
    for loss in (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0):
        scheduler.step({"loss": loss})
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2]
    with pytest.raises(TypeError):
        scheduler.step(0.5)
    with pytest.raises(KeyError):
        scheduler.step({"acc": 0.5})


def test_the_virtual_base_group_follows_the_schedule() -> None:
    wrapper = OptimWrapper(make_optimizer(0.1, groups=2))
    wrapper.optimizer.param_groups[0]["lr"] = 0.5
    scheduler = ExponentialLR(wrapper, 0.5)
    wrapper.step()
    scheduler.step()
    assert wrapper.get_lr() == {"base_lr": [0.05], "lr": [0.25, 0.05]}
    with pytest.raises(ValueError, match="expected 2"):
        ReduceOnPlateauLR(wrapper, min_value=[0.1, 0.1, 0.1])
    assert ReduceOnPlateauLR(wrapper, min_value=[0.1, 0.2]).min_values == [0.1, 0.2, 0.2]


def test_verbose_schedulers_tell_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    logger = MMLogger.get_instance("verbose-schedulers")
    scheduler = StepLR(make_optimizer(), 1, verbose=True)
    scheduler.print_value(False, 0, 0.5)
    assert logger is MMLogger.get_current_instance()
    assert capsys.readouterr().out.count("Adjusting parameter value of group 0 to 5.0000e-02") == 1
