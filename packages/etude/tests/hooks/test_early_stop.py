"""Tests of :mod:`etude.hooks.early_stop`."""

from __future__ import annotations

import math

import pytest

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.early_stop import EarlyStop, TimeBudget
from etude.hooks.ema import Ema
from etude.hooks.evaluate import Evaluate
from etude.hooks.freeze import Freeze
from etude.hooks.profiler import Profiler
from tests.hooks.conftest import small_run
from tests.hooks.support import every, scripted


@pytest.mark.parametrize(
    ("options", "results", "steps", "reason"),
    [
        ({"metric": "accuracy", "patience": 2}, [0.5, 0.6, 0.6, 0.5, 0.9], 16, "has not improved since step 8"),
        ({"metric": "loss", "patience": 1}, [0.5, 0.6], 8, "has not improved since step 4"),
        ({"metric": "accuracy", "mode": "min", "patience": 1}, [0.5, 0.6], 8, "since step 4"),
        ({"metric": "accuracy", "patience": 1, "by": 0.2}, [0.5, 0.6], 8, "since step 4"),
        ({"metric": "accuracy", "patience": 1}, [0.5, math.nan], 8, "since step 4"),
        ({"metric": "accuracy", "target": 0.6}, [0.5, 0.61], 8, "has reached 0.61"),
    ],
)
def test_early_stop_ends_a_run_that_no_longer_improves(options, results, steps, reason):
    hook = EarlyStop(**options)
    run = small_run([every(Evaluate(), "1ep"), hook], epochs_wanted=9)
    scripted(run, results, options["metric"])
    fit(run)
    assert run.step == steps and reason in run.stopping and run.exit_code == 0
    again = EarlyStop(**options)
    again.load_state_dict(hook.state_dict())
    assert (again.best, again.waited) == (hook.best, hook.waited)


def test_early_stop_needs_its_metric():
    run = small_run([every(Evaluate(), "1ep"), EarlyStop("acuracy")])
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        fit(run)


def test_time_budget_stops_for_the_queue():
    run = small_run([TimeBudget("0.000000001s")])
    fit(run)
    assert run.step == 1 and run.exit_code == 75 and "time budget" in run.stopping
    used = TimeBudget("1h", total=True)
    used.load_state_dict({"seconds": 3601.0})
    run = small_run([used])
    fit(run)
    assert run.step == 1
    with pytest.raises(ConfigError, match="not a time"):
        TimeBudget("3ep")


@pytest.mark.parametrize("make", [
    lambda: EarlyStop(patience=0), lambda: Profiler(first=0), lambda: Profiler(steps=0), lambda: Freeze([]),
    lambda: Ema(0.0), lambda: Ema(1.1), lambda: TimeBudget("2ep"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(make):
    with pytest.raises(ConfigError):
        make()


def test_options_may_be_at_their_limits():
    assert EarlyStop(patience=1).patience == Profiler(first=1, steps=1).steps == Ema(1.0).momentum == 1


@pytest.mark.parametrize(("metric", "target", "value", "stops"), [
    ("loss", 0.5, 0.5, True), ("loss", 0.5, 0.6, False), ("accuracy", 0.5, 0.5, True), ("accuracy", 0.5, 0.4, False),
])  # fmt: skip
def test_a_target_is_reached_when_it_is_met(metric, target, value, stops):
    run = small_run()
    run.metrics = {metric: value}
    EarlyStop(metric, target=target).after_eval(run)
    assert (run.stopping == f"{metric} has reached {value:g}") == stops and (run.stopping is None) != stops


def test_patience_counts_evaluations_since_the_last_improvement():
    hook, run = EarlyStop("accuracy", patience=2, by=0.1), small_run()
    for value, waited in ((0.5, 0), (0.6, 1), (0.71, 0), (0.7, 1)):
        run.metrics, run.step = {"accuracy": value}, run.step + 1
        hook.after_eval(run)
        assert hook.waited == waited and run.stopping is None
    again = EarlyStop("accuracy", patience=2, by=0.1)
    again.load_state_dict(hook.state_dict())
    again.after_eval(run)
    assert run.stopping == "accuracy has not improved since step 3" and run.exit_code == 0


@pytest.mark.parametrize(("total", "left"), [(True, 4.0), (False, 10.0)])
def test_a_time_budget_counts_earlier_processes_only_in_total(total, left):
    now = [100.0]
    run = small_run()
    run.clock = lambda: now[0]
    run.peers = object()  # ranks begin together
    hook = TimeBudget("10s", total=total)
    hook.load_state_dict({"seconds": 6.0})
    hook.before_train(run)
    now[0] += left - 0.5
    hook.after_step(run)
    assert run.stopping is None and hook.state_dict()["seconds"] == pytest.approx(9.5)
    now[0] += 0.5
    hook.after_step(run)
    assert run.stopping == "the time budget of 10 s is used up" and run.exit_code == 75


def test_a_time_budget_ends_with_its_last_second_and_counts_from_the_start_of_the_process():
    def ended(limit: float) -> int:
        ticks: list[int] = []
        budget = TimeBudget(f"{limit}s")
        budget._clock, budget._began = (lambda: 7.0), 5.0  # the process began two seconds before training
        run = small_run([FunctionHook(lambda run: ticks.append(1), "after_step", priority=1), budget])
        run.clock = lambda: float(1000 + len(ticks))
        fit(run)
        return run.step

    assert ended(5) == 3 and ended(100) == 8
