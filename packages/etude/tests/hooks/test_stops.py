"""What the last hook of a step does about signals, the clock and states that must not be lost."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

import pytest

from etude.core.hook import FunctionHook
from etude.errors import SaveError, Stopped
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.signals import Signals, Stops
from tests.hooks.conftest import small_run


class Store:
    """Notes what it is asked for."""

    def __init__(self, *, holds: bool = True, broken: bool = False) -> None:
        self.asked: list[str] = []
        self.news: list = []
        self._holds, self._broken = holds, broken

    def __getattr__(self, name: str):
        def call(*args, **options):
            self.asked.append(name)
            if self._broken:
                raise OSError("disk full")

        return call

    def holds(self, run) -> bool:
        return self._holds


def received(name: str | None) -> Signals:
    signals = Signals()
    signals.received = name
    return signals


@pytest.mark.parametrize(
    ("hooks", "held"),
    [([], False), ([Checkpoint()], False), ([FunctionHook(print, "after_epoch")], True)],
)
def test_the_state_before_the_end_of_an_epoch_is_held_if_a_hook_may_fail_there(hooks, held):
    for hook in hooks:
        hook.every = "1ep"
    stops = Stops()
    run = small_run([stops, *hooks, by_epoch := Checkpoint()])
    by_epoch.every = "1ep"
    run.hooks.compile()
    run.store = store = Store()
    seen = []
    for run.step in range(4):
        run.step_in_epoch = run.step
        stops.after_step(run)
        seen.append("hold" in store.asked)
    assert seen == [False, False, False, held] and store.asked[0] == "prepare"


@pytest.mark.parametrize(
    ("name", "holds", "stops"),
    [("SIGTERM", True, True), ("SIGTERM", False, False), (None, True, False)],
)
def test_an_evaluation_is_cut_off_by_a_signal_only_if_the_training_before_it_is_saved(name, holds, stops):
    run, hook = small_run(), Stops(received(name))
    run.store, run.step = Store(holds=holds), 7
    if stops:
        with pytest.raises(Stopped, match="stopped by SIGTERM in the evaluation after step 7"):
            hook.before_eval_step(run)
    else:
        hook.before_eval_step(run)
    run.store = None
    hook.before_eval_step(run)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGUSR1", 75)])
def test_a_signal_stops_a_run_with_its_own_exit_code(name, code):
    for act in (Stops.before_train, Stops.after_step, Stops.after_epoch):
        run = small_run()
        act(Stops(received(name)), run)
        assert run.exit_code == code and run.stopping.startswith("stopped by ")


@pytest.mark.parametrize(
    ("error", "debug", "asked"),
    [
        (ValueError(), False, ["save_emergency", "close"]),
        (ValueError(), True, ["save_emergency", "save_failed", "close"]),
        (KeyboardInterrupt(), True, ["save_emergency", "close"]),
        (SaveError("no"), True, []),
    ],
)
def test_an_error_saves_what_is_left_and_the_failed_step_on_request(error, debug, asked):
    run = small_run([Checkpoint(debug=debug), stops := Stops()])
    run.store, run.error = Store(), error
    stops.on_error(run)
    assert run.store.asked == asked
    run.store = None
    stops.on_error(run)


def test_a_save_that_fails_after_an_error_is_only_told(capsys):
    run = small_run()
    run.store, run.error = Store(broken=True), ValueError()
    Stops().on_error(run)
    assert capsys.readouterr().err == "etude: the state could not be saved: disk full\n"


def test_the_start_is_told_once_by_whichever_point_comes_first():
    for first, second in ((Stops.before_train, Stops.before_epoch), (Stops.before_epoch, Stops.before_train)):
        run, hook, seen = small_run(), Stops(), []
        hook.on_start(lambda: seen.append("started"))
        first(hook, run), second(hook, run)
        assert seen == ["started"]


def test_finished_steps_are_noted():
    run, hook, seen = small_run(), Stops(), []
    hook.note = seen.append
    for run.step in range(3):
        hook.after_step(run)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(("now", "done", "stopped"), [(9.9, 3, False), (10.0, 3, True), (10.0, 8, False)])
def test_time_is_up_at_the_limit_unless_the_run_is_done(now, done, stopped):
    clock = SimpleNamespace(now=0.0)
    run, hook = small_run(), Stops(max_seconds=10.0, clock=lambda: clock.now)
    clock.now, run.step = now, done
    hook.after_epoch(run)
    assert (run.stopping == f"time is up at step {done}") == stopped and run.exit_code == (75 if stopped else 0)


def test_handlers_are_those_of_before_once_a_run_is_over():
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
    before, signals = [signal.getsignal(number) for number in numbers], Signals()
    assert not signals.installed
    signals.install()
    assert signals.installed and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    signals.restore()
    assert not signals.installed and [signal.getsignal(number) for number in numbers] == before
    other = threading.Thread(target=signals.install)
    other.start(), other.join()
    assert not signals.installed


def test_ranks_stop_together_and_by_the_clock_that_they_share():
    peers, own = SimpleNamespace(stop=0, now=0.0, clock=lambda: peers.now), SimpleNamespace(now=100.0)
    shared, given = Stops(received("SIGTERM"), max_seconds=1000.0), Stops(max_seconds=10.0, clock=lambda: own.now)
    for hook, early, late in ((shared, (500.0, 100.0), (1000.0, 100.0)), (given, (5000.0, 109.0), (0.0, 110.0))):
        hook.agree_with(peers)
        run = small_run()
        for (peers.now, own.now), stopped in ((early, None), (late, "time is up at step 0")):
            hook.after_epoch(run)
            assert run.stopping == stopped
    assert shared._wish() == 143 and given._wish() == 0
    peers.stop, run = 130, small_run()
    shared.after_epoch(run)
    assert run.stopping == "stopped by Ctrl-C at step 0"
