"""Wraps a run that drives itself: the lock, the heartbeat and the last message."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from etude.errors import ResumeError, UserError
from etude.ledger.rows import file_of
from etude.ledger.writer import DrivenLedger
from etude.session.last_words import resume_command
from etude.session.records import keep_history
from etude.session.session import Session
from etude.session.watch import wall_time
from etude.session.watch.watchdog import start_pulse


class HostedSession(Session):
    """A context around a run that drives itself: the lock and the final message. Log, checkpoints and folder have the
    layout of the other system."""

    private = False
    _marks: ExitStack | None = None

    def _tell(self, line: str) -> None:
        if self.run.world.is_main and not self.options.quiet:
            print(f"etude: {line}", file=sys.stderr)

    def _try_out(self) -> None:
        """Leave the other system's validation and updates to it."""

    def _open(self) -> None:
        self._marks = wall_time.mark_updates(self.run)
        locks, guards = self._lock(self.console.say)
        guards.adopt(locks)
        self._compare_code()
        folder = self.run.folder if self.run.world.is_main else None
        if folder is not None and not self.folder.made and self.options.resume is None:
            self.folder.record(folder, anew=True)  # the other systems begin a new run in the folder of an old one
        run = self.run
        if run.plan is not None and run.plan.ledger and self.lasting and run.folder is not None and run.folder.is_dir():
            keep_history(run, DrivenLedger(run.folder / file_of(run.world.rank)))
        if self.run.world.is_many:
            self._pulse = start_pulse(self.run)

    def _close(self, error: BaseException | None) -> None:
        if self._marks is not None:
            self._marks.close()
        super()._close(error)

    def _is_unused(self, error: BaseException) -> bool:
        """Return whether the run's folder may be removed. Once the log's path is printed, only a user mistake or an
        unusable checkpoint allows that."""
        return isinstance(error, UserError | ResumeError) and self.folder.is_unused()

    def _say_last_words(self, error: BaseException | None, *, unused: bool) -> None:
        run = self.run
        if error is None and run.exit_code and not self.options.quiet and run.world.is_main:
            print(f"etude: {run.stopping}, saved; {resume_command(run, self.options, self.given)}", file=sys.stderr)
