"""Tests of :mod:`etude.hooks.timer`."""

from __future__ import annotations

import pytest

from etude.hooks import timer
from tests.hooks.conftest import small_run


def test_the_timer_divides_time_into_steps_data_and_evaluation(monkeypatch):
    moments = iter([0.0, 100.0, 101.0, 104.0, 110.0, 130.0, 131.0, 133.0])
    monkeypatch.setattr(timer, "perf_counter", lambda: next(moments))
    run = small_run()
    hook = timer.Timer()
    hook.before_train(run)
    hook.before_step(run), hook.after_step(run)  # 1 s for data, 3 s for the step
    hook.before_eval(run), hook.after_eval(run)  # 20 s, after 6 s of something else
    hook.before_step(run), hook.after_step(run)  # 7 s for data, 2 s for the step
    assert hook.totals == {"step": 5.0, "data": 8.0, "evaluation": 20.0} and hook.steps == 2
    values = run.events.flush(step=2, epoch=0).values
    assert (values["time/step"], values["time/data"]) == (2.5, 4.0)
    assert values["throughput/steps_per_second"] == pytest.approx(2 / 13)
    assert values["throughput/samples_per_second"] == pytest.approx(16 / 13)


def test_every_record_of_the_timer_covers_the_steps_since_the_one_before(monkeypatch):
    moments = iter([0.0, 0.0, 1.0, 4.0, 10.0, 12.0])
    monkeypatch.setattr(timer, "perf_counter", lambda: next(moments))
    run, hook = small_run(), timer.Timer()
    hook.before_train(run)
    hook.before_step(run), hook.after_step(run)
    first = run.events.flush(step=1, epoch=0).values
    assert (first["time/data"], first["time/step"], first["throughput/steps_per_second"]) == (1.0, 3.0, 0.25)
    hook.before_step(run), hook.after_step(run)
    second = run.events.flush(step=2, epoch=0).values
    assert (second["time/data"], second["time/step"], second["throughput/steps_per_second"]) == (6.0, 2.0, 0.125)
