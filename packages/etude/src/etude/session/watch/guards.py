"""Watches over a run: signals, time limits, planned faults, steps that hang, and failed attempts."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from etude.building.options import Options
from etude.checkpoint.attempts import Attempts
from etude.checkpoint.storage import chaos
from etude.core.run import Run
from etude.dist import group
from etude.dist.jobs import reports
from etude.dist.peers import Peers
from etude.errors import UserError
from etude.hooks.signals import Signals, Stops
from etude.plan import Plan
from etude.session.recovery.locks import Locks
from etude.session.watch.faults import Faults
from etude.session.watch.watchdog import Watchdog

#: Flags of other systems that mean the same.
_RESUMING = ("auto_resume", "resume_from")


class Guards:
    """What may stop a run from outside. Closed in the reverse order of opening."""

    def __init__(
        self,
        run: Run,
        options: Options,
        *,
        say: Callable[[str], Any],
        began: float | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.run, self.options, self.say = run, options, say
        self.signals = Signals(grace=options.grace)
        # The clock of peers counts from their common start.
        began = 0.0 if run.peers is not None else began or time.monotonic()
        limit = plan.train.max_seconds if plan is not None else None
        self.stops = Stops(self.signals, max_seconds=limit, began=began, clock=run.clock)
        self.watchdog = Watchdog(run, say=say)
        self._attempts: Attempts | None = None
        self._faults: Faults | None = None

    def listen(self) -> None:
        """Listen for signals, and watch for steps that hang."""
        self.signals.install()
        self.run.hooks.add(self.stops)
        self.watchdog.start()

    def adopt(self, locks: Locks) -> None:
        """Guard a run that drives itself: it has its own checkpoints and its own signal handling."""
        own = next((hook for hook in self.run.hooks if isinstance(hook, Stops)), None)
        if own is not None:
            self.stops, self.signals = own, own.signals
            if locks.presence is not None:
                locks.presence.stops = own
            self.signals.grace = self.options.grace
            self.stops.on_start(self.begin_attempt)
            if group.is_there():
                group.join(self.run.world, timeout=reports.timeout())
                own.agree_with(Peers(self.run.world))
        self.watchdog.say = lambda line: print(f"etude: {line}", file=sys.stderr)
        self.watchdog.start()

    def plan_faults(self) -> None:
        if self.options.chaos:
            self._faults = Faults(chaos.parse(self.options.chaos, rank=self.run.world.rank, size=self.run.world.size))
            self._faults.listen()
            self.run.hooks.add(self._faults)

    def begin_attempt(self) -> None:
        """Abort if earlier attempts failed at this step; record this attempt."""
        if self.run.folder is None or not self.run.world.is_main:
            return
        asked = self.options.resume is not None or any(self.options.extras.get(flag) for flag in _RESUMING)
        goes_on = asked or self.run.step > 0
        attempts = Attempts(self.run.folder, say=self.say)
        attempts.begin(self.run.step, again=not goes_on or "attempts" in self.options.allow_change)
        self._attempts, self.stops.note = attempts, attempts.note

    def close(self, error: BaseException | None) -> None:
        if self._faults is not None:
            self._faults.rest()
            if error is None and self.run.stopping is None:
                for fault in self._faults.missed(self.run):
                    warnings.warn(f"--chaos {fault} never came: the run has {self.run.done} steps", stacklevel=1)
        self.watchdog.stop()
        self._end_attempt(error)
        self.signals.restore()

    def _end_attempt(self, error: BaseException | None) -> None:
        """Forget the attempt if it ended well, or with a mistake that is reported at once, which is no failure of
        the run."""
        if self._attempts is None:
            return
        if isinstance(error, Exception) and not isinstance(error, UserError):
            self._attempts.failed(self.run.step, error)
        else:
            self._attempts.clear()
