"""What hooks measure by the clock, and what a signal does to a script of one's own."""

from __future__ import annotations

import os
import signal
import threading
import warnings

import pytest
import torch
from torch.optim import lr_scheduler

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks import timer
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.early_stop import TimeBudget
from etude.hooks.profiler import Profiler
from etude.hooks.schedule import TorchSchedule
from etude.hooks.signals import Signals, Stops, saving_at_signals

from .conftest import small_run


def test_the_timer_divides_time_into_steps_data_and_evaluation(monkeypatch):
    moments = iter([0.0, 100.0, 101.0, 104.0, 110.0, 130.0, 131.0, 133.0])
    monkeypatch.setattr(timer, "perf_counter", lambda: next(moments))
    run = small_run()
    hook = timer.Timer()
    next(moments)
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
    next(moments)
    hook.before_train(run)
    hook.before_step(run), hook.after_step(run)
    first = run.events.flush(step=1, epoch=0).values
    assert (first["time/data"], first["time/step"], first["throughput/steps_per_second"]) == (1.0, 3.0, 0.25)
    hook.before_step(run), hook.after_step(run)
    second = run.events.flush(step=2, epoch=0).values
    assert (second["time/data"], second["time/step"], second["throughput/steps_per_second"]) == (6.0, 2.0, 0.125)


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


@pytest.mark.parametrize(
    ("make", "by", "message"),
    [
        (lambda one: lr_scheduler.StepLR(one, 1), "accuracy", "stepped by 'step' or by 'epoch', not by 'accuracy'"),
        (lambda one: lr_scheduler.ReduceLROnPlateau(one, mode="max"), "", "needs the metric that it watches"),
    ],
)
def test_a_scheduler_of_torch_that_would_never_be_right_is_refused(make, by, message):
    run = small_run()
    with pytest.raises(ConfigError, match=message):
        TorchSchedule(make(run.optimizers[""]), by)
    other = torch.optim.SGD(run.model.parameters())
    with pytest.raises(ConfigError, match="drives an optimizer that is not the trainer's"):
        TorchSchedule(lr_scheduler.StepLR(other, 1), among=run.optimizers.values())


def test_a_scheduler_that_waits_for_the_accuracy_to_fall_is_warned_about():
    (optimizer,) = small_run().optimizers.values()
    with pytest.warns(UserWarning, match="waits for the accuracy to fall"):
        TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer), "accuracy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer, mode="max"), "accuracy")
        plain = TorchSchedule(lr_scheduler.ReduceLROnPlateau(optimizer), among=[optimizer])
        TorchSchedule(lr_scheduler.StepLR(optimizer, 1), "step")
        assert TorchSchedule(lr_scheduler.StepLR(optimizer, 1)).by == "epoch"
        cycle = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=9)
        assert TorchSchedule(cycle).by == "step" and TorchSchedule(cycle).moves_momentum
    assert (made.by, plain.by, plain.moves_momentum) == ("accuracy", "loss", False)
    run = small_run()
    plain.attach(run)
    del run.data["val"]
    with pytest.raises(ConfigError, match="watches 'loss', and there is no validation data"):
        plain.attach(run)
    run.metrics = {"los": 1.0}
    with pytest.raises(ConfigError, match="no evaluation gives a metric 'loss'; did you mean 'los'"):
        plain._step(run)


@pytest.mark.parametrize(("error", "exit_code", "told"), [(None, 0, 1), (ValueError(), 0, 0), (None, 143, 0)])
def test_a_profiler_that_never_began_says_so_unless_the_run_was_cut_off(error, exit_code, told):
    run = small_run()
    run.error, run.exit_code = error, exit_code
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        Profiler(first=100).after_train(run)
    assert len(seen) == told
    for options in ({"first": 0}, {"steps": 0}):
        with pytest.raises(ConfigError, match="must be at least 1"):
            Profiler(**options)
    Profiler(first=1, steps=1)


def test_a_checkpoint_by_a_metric_that_no_evaluation_gives_is_warned_about():
    run = small_run()
    run.metrics = {"accuracy": 0.5}
    with pytest.warns(UserWarning, match="the evaluation gave no 'acuracy'; did you mean 'accuracy'"):
        Checkpoint(best="acuracy").after_eval(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Checkpoint().after_eval(run)
        hook = Checkpoint(best="accuracy", best_k=2)
        for run.step, score in enumerate((0.5, 0.4, 0.4, 0.7)):
            run.metrics = {"accuracy": score}
            hook.after_eval(run)
            assert hook.has_new_best(run) == (run.step != 2)
    assert (hook.best_value, hook.best_step) == (0.7, 3) and hook.fresh_metrics(run) == {"accuracy": 0.7}
    run.step = 4
    assert hook.fresh_metrics(run) == {} and not hook.has_new_best(run)
    older = {key: value for key, value in hook.state_dict().items() if key not in ("top", "ranked_at")}
    other = Checkpoint(best="accuracy")
    other.load_state_dict(older)
    assert (other._top, other._ranked_at) == ([0.7], 3)
    other.load_state_dict(older | {"best_value": None})
    assert other._top == []


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt), (None, None)]
)
def test_a_signal_ends_a_script_after_its_step(number, ends):
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    run = small_run([FunctionHook(lambda run: number and os.kill(os.getpid(), number), "before_update", every="2step")])
    if ends is None:
        with saving_at_signals(run, processes=1):
            fit(run)
    else:
        with pytest.raises(ends) as caught, saving_at_signals(run, processes=1):
            fit(run)
        assert ends is KeyboardInterrupt or caught.value.code == 143
    assert run.step == (8 if ends is None else 2)
    assert not any(isinstance(hook, Stops) for hook in run.hooks)
    assert before == {one: signal.getsignal(one) for one in before}


def test_signals_are_left_to_who_listens_already(monkeypatch):
    def listens(run, processes: int = 1) -> bool:
        before = sum(isinstance(hook, Stops) for hook in run.hooks)
        with saving_at_signals(run, processes=processes):
            return sum(isinstance(hook, Stops) for hook in run.hooks) > before

    assert listens(small_run()) and not listens(small_run(), processes=2) and not listens(small_run([Stops()]))
    for number in (signal.SIGTERM, signal.SIGINT):
        own = signal.signal(number, lambda *args: None)
        assert not listens(small_run())
        signal.signal(number, signal.SIG_IGN)
        assert listens(small_run())
        signal.signal(number, own)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(listens(small_run())))
    thread.start(), thread.join()
    assert found == [False]


def test_the_grace_period_begins_once_and_not_after_the_end():
    signals = Signals(grace=600)
    signals._start_clock("SIGTERM")
    first = signals._timer
    signals._start_clock("SIGINT")
    assert signals._timer is first and first.is_alive()
    signals.restore()
    first.join(10)
    assert not first.is_alive()
    late = Signals(grace=600)
    late.restore()
    late._start_clock("SIGTERM")
    assert late._timer is None and not late.installed


def test_a_run_alone_is_attended_to_at_its_first_step_and_then_when_there_is_something_to_do():
    class Store:
        news: list[int] = []
        polled = prepared = 0

        def prepare(self, run) -> None:
            self.prepared += 1

        def poll(self) -> None:
            self.polled += 1
            self.news.clear()

    store, noted = Store(), []
    stops = Stops()
    stops.note = noted.append
    run = small_run([stops, FunctionHook(lambda run: run.step == 4 and store.news.append(1), "before_step")])
    run.store = store
    fit(run)
    assert (store.prepared, store.polled) == (1, 2) and noted == list(range(1, 9))


@pytest.mark.parametrize(
    ("seconds", "began", "steps"), [(3.0, None, 3), (3.0, -1.0, 2), (8.0, None, 8), (100.0, None, 8), (None, None, 8)]
)
def test_a_time_limit_ends_a_run_with_the_step_that_reaches_it(seconds, began, steps):
    ticks: list[int] = []
    stops = Stops(max_seconds=seconds, began=began, clock=lambda: float(len(ticks)))
    run = small_run([FunctionHook(lambda run: ticks.append(1), "after_step", priority=1), stops])
    fit(run)
    assert run.step == steps and (run.exit_code == 75) == (steps < 8)
