"""Tests of :mod:`etude.hooks.signals`."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from etude.core.hook import FunctionHook
from etude.core.loop import fit
from etude.hooks.signals import Signals, Stops, saving_at_signals
from tests.hooks.conftest import small_run


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
