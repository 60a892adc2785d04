"""Handles SIGTERM, SIGINT, SIGUSR1, the time limit and failed saves, between two steps."""

from __future__ import annotations

import multiprocessing.util
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from etude.core.hook import Hook
from etude.errors import REQUEUE, SaveError, Stopped
from etude.hooks.checkpoint import Checkpoint
from etude.hooks.log import Log

if TYPE_CHECKING:
    from etude.core.run import Run
    from etude.dist.peers import Peers

#: Signal → what it is called, and the exit code after a saved checkpoint.
SIGNALS = {
    "SIGTERM": ("stopped by SIGTERM", 143),
    "SIGINT": ("stopped by Ctrl-C", 130),
    "SIGUSR1": ("stopped by SIGUSR1", REQUEUE),
}
#: The same by exit code.
_REASONS = {code: (words, code) for words, code in SIGNALS.values()}
#: Seconds that a run has to finish its step and save, once a signal came.
GRACE = 30.0
_bells: set[socket.socket] = set()


class _Mask(threading.local):
    """Holds the signal mask that a thread had before it forked."""

    before: set[int] | None = None


_mask = _Mask()


def _hold_signals() -> None:
    """Block signals while forking: parent and child share the wakeup socket, so that a signal to the child would start
    the parent's grace period."""
    if _bells:
        _mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {getattr(signal, name) for name in SIGNALS})


def _release_signals() -> None:
    if _mask.before is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask.before)
        _mask.before = None


def _leave_the_bell() -> None:
    """Detach a forked child, such as a data worker, from the parent's wakeup socket."""
    if _bells:
        signal.set_wakeup_fd(-1)
    _release_signals()


def _spare_worker(signals: Signals) -> None:
    """Let a forked worker obey SIGTERM from its parent alone.

    Schedulers, systemd and ``timeout`` send it to every process of a run, and a run whose workers are gone cannot
    finish its step and save. Workers end with the run as ever: torch's and Étude's watch their parent.
    """
    if signals.installed and hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_obey, args=[os.getppid()], daemon=True, name="etude-signals").start()


def _obey(parent: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)  # as a worker of torch ends when its loader says so


os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_leave_the_bell)


class Signals:
    """Turns the first signal into a request to stop and the second into an immediate exit. The handler only records the
    signal.

    The run then has ``grace`` seconds to finish the step and save; after that the process ends without a save.
    """

    def __init__(self, *, grace: float = GRACE) -> None:
        self.received: str | None = None
        self.grace = grace
        self._before: dict[int, Any] = {}
        self._timer: threading.Timer | None = None
        self._over = False
        self._lock = threading.Lock()
        self._bell: socket.socket | None = None
        self._bell_before = -1

    def install(self) -> None:
        """Install the handlers. Python allows it in the main thread only; elsewhere the program's own handlers stay."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._over = False
        self._listen()
        for number in (getattr(signal, name) for name in SIGNALS):
            self._before[number] = signal.signal(number, self._handle)
        multiprocessing.util.register_after_fork(self, _spare_worker)
        # The run goes on when its terminal is closed.
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    @property
    def installed(self) -> bool:
        return bool(self._before)

    def _listen(self) -> None:
        """Let another thread start the grace period when a signal arrives.

        Python runs a handler only when the main thread returns to the interpreter. A backward pass is one call, so that
        could take minutes, and the grace period would start too late.
        """
        ear, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        _bells.add(self._bell)
        self._bell_before = signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._hear, args=[ear], daemon=True, name="etude-signals").start()

    def _hear(self, ear: socket.socket) -> None:
        with ear:
            while numbers := ear.recv(16):
                for name in (signal.Signals(number).name for number in numbers):
                    if name in SIGNALS:
                        self._start_clock(name)

    def _start_clock(self, name: str) -> None:
        """Start the grace period, unless the run is over: the other thread may see a signal late."""
        with self._lock:
            if self._timer is None and not self._over:
                self._timer = threading.Timer(self.grace, self._give_up, [name])
                self._timer.daemon = True
                self._timer.start()

    def restore(self) -> None:
        if self._bell is not None:
            signal.set_wakeup_fd(self._bell_before)
            _bells.discard(self._bell)
            self._bell.close()
            self._bell = None
        with self._lock:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.received is not None:
            os._exit(SIGNALS[name][1])  # safe in the middle of a save: an unfinished one is never read
        self.received = name
        if self._bell is None:
            self._start_clock(name)
        if name == "SIGINT":
            # Not print: the handler may have come in the middle of one, which raises.
            os.write(2, b"\nstopping after this step; Ctrl-C again to quit without saving\n")

    def _give_up(self, name: str) -> None:
        """End the process without a save. Older checkpoints stay; the next start removes the half-written one."""
        os.write(2, f"\netude: not done {self.grace:g} s after {name}; ending without a save\n".encode())
        os._exit(SIGNALS[name][1])


class Stops(Hook):
    """Acts last in every step: stops the run after a signal or at its time limit, saves a new best, reports saves.

    Most steps give it nothing to do. It attends to one after an evaluation, when a save has ended, when a signal came,
    at the end of an epoch whose hooks may fail, and to every step of several ranks.
    """

    priority = 120

    def __init__(
        self,
        signals: Signals | None = None,
        *,
        max_seconds: float | None = None,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.signals = signals or Signals()
        self._clock = clock
        self._deadline = float("inf") if max_seconds is None else (clock() if began is None else began) + max_seconds
        self._on_start: Callable[[], None] | None = None
        self._judges: list[Checkpoint] = []
        #: Whether to attend to the next step whatever happens, as to the first.
        self._awake = True
        #: The saves that have ended, and the step after which to hold a copy of the state.
        self._news: Collection[Any] | None = None
        self._hold_at = -1
        self._peers: Peers | None = None
        #: The exit code to stop with; with several ranks, what all of them have agreed on.
        self._wished: Callable[[], int] = self._wish
        #: Records the number of finished steps after each step, so that a restart knows where the run died.
        self.note: Callable[[int], None] | None = None
        #: Why the run cannot go on where it is, though nothing is wrong with the training.
        self._lost = ""

    def stop_for(self, reason: str) -> None:
        """Stop the run after this step, saved: its checkpoints or records cannot stay where they were."""
        self._lost, self._awake = reason, True

    def on_start(self, call: Callable[[], None]) -> None:
        """Call ``call`` right before the first step, when everything else is ready."""
        self._on_start = call

    def agree_with(self, peers: Peers) -> None:
        """Decide together with the other ranks from now on: what one of them is asked for, all of them do."""
        self._peers, peers.wish = peers, self._wish
        self._wished = lambda: peers.stop
        if self._clock is time.monotonic:
            self._deadline, self._clock = self._deadline - time.monotonic(), peers.clock

    def before_train(self, run: Run) -> None:
        self._judges = [hook for hook in run.hooks if isinstance(hook, Checkpoint) and hook.best]
        if run.peers is not None:
            self.agree_with(run.peers)
            run.peers.exchange()
        if self._wished():
            self._check(run)  # a time limit waits for the first step, so that every life gets somewhere
        self._start()

    def before_epoch(self, run: Run) -> None:
        """Start here if the loop of another system does not call ``before_train``."""
        self._start()
        self._plan_hold(run)

    def _start(self) -> None:
        if self._on_start is not None:
            call, self._on_start = self._on_start, None
            call()

    def after_step(self, run: Run) -> None:
        if self.note is not None:
            self.note(run.step + 1)
        signalled = self.signals.received is not None
        if self._awake or self._news or signalled or run.step == self._hold_at or self._clock() >= self._deadline:
            self._attend(run)

    def _attend(self, run: Run) -> None:
        if run.store is not None:
            if self._news is None:  # the first step: the optimizers have their state
                run.store.prepare(run)
                self._news = run.store.news
                self._plan_hold(run)
            self._save_best(run)
            run.store.poll()
            if run.step == self._hold_at:
                run.store.hold(run)
        self._awake = self._peers is not None
        if self._peers is not None:
            self._peers.meet(run.step)
        self._check(run)

    def _plan_hold(self, run: Run) -> None:
        """Hold a copy of the state after the epoch's last step if a hook may fail at the epoch's end."""
        may_fail = any(not isinstance(hook, Checkpoint | Log | Stops) for hook in run.hooks.after_epoch.hooks)
        if may_fail and run.steps_per_epoch is not None:
            self._hold_at = run.step + run.steps_per_epoch - run.step_in_epoch - 1

    def before_eval_step(self, run: Run) -> None:
        """Stop an evaluation at a signal if the training before it is saved; otherwise after it."""
        if run.peers is not None:
            run.peers.exchange()
        if self._wished() and run.store is not None and run.store.holds(run):
            reason, code = _REASONS[self._wished()]
            raise Stopped(f"{reason} in the evaluation after step {run.done}", code)

    def after_eval(self, run: Run) -> None:
        self._awake = True

    def after_epoch(self, run: Run) -> None:
        if run.store is not None:
            self._save_best(run)
        self._check(run)

    def on_error(self, run: Run) -> None:
        """Save the training before a failed evaluation or hook and, with ``debug``, the state of a failed step."""
        if run.store is None or isinstance(run.error, SaveError):
            return
        try:
            run.store.save_emergency(run, run.error)
            if isinstance(run.error, Exception) and any(h.debug for h in run.hooks if isinstance(h, Checkpoint)):
                run.store.save_failed(run)
            run.store.close()
        except Exception as error:
            print(f"etude: the state could not be saved: {error}", file=sys.stderr)

    def _check(self, run: Run) -> None:
        # A rank that stopped alone would leave the others in their next step: it waits until they know of its wish.
        if self._lost and (self._peers is None or self._wished()):
            run.stop(self._lost, exit_code=SaveError.exit_code)
        if self._wished():
            reason, code = _REASONS[self._wished()]
            run.stop(f"{reason} at step {run.done}", exit_code=code)
        elif self._clock() >= self._deadline and run.done != run.total_steps:  # who is done needs no more time
            run.stop(f"time is up at step {run.done}", exit_code=REQUEUE)

    def _wish(self) -> int:
        """Return the exit code that a signal asks this process for, 0 while none came."""
        if self._lost:  # the other ranks know no other way to stop after the same step
            return SIGNALS["SIGTERM"][1]
        return 0 if self.signals.received is None else SIGNALS[self.signals.received][1]

    def _save_best(self, run: Run) -> None:
        for hook in self._judges:
            if hook.has_new_best(run):
                run.store.save(run, metrics=hook.fresh_metrics(run))


@contextmanager
def saving_at_signals(run: Run, *, processes: int) -> Iterator[None]:
    """Let a signal end the runner or trainer that your own script calls after a save, and then the script.

    Nothing changes where someone else listens (``etude train``, or a handler of yours), nor with several processes:
    they have to stop after the same step, which ``etude train --nproc`` sees to.
    """
    if processes > 1 or _is_taken() or any(isinstance(hook, Stops) for hook in run.hooks):
        yield
        return
    signals = Signals()
    hook = Stops(signals)
    run.hooks.add(hook)
    signals.install()
    try:
        yield
    finally:
        signals.restore()
        run.hooks.remove(hook)
    if signals.received == "SIGINT":
        raise KeyboardInterrupt(SIGNALS["SIGINT"][0])
    if signals.received is not None:
        raise SystemExit(SIGNALS[signals.received][1])


def _is_taken() -> bool:
    """Return whether the program handles signals itself, or cannot: Python allows it in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        return True
    usual = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)  # `nohup … &` lets Ctrl-C be ignored
    return any(signal.getsignal(number) not in usual for number in (signal.SIGTERM, signal.SIGINT))
