"""Wraps the training of a run: folder, writers, checkpoints, signals, and the summary at the end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from errno import errorcode
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from etude import dialects
from etude.dialects.config_lines import point_out
from etude.dist import group
from etude.errors import Diverged, EtudeError, SaveError, Stopped
from etude.events.console import Console
from etude.preview.notebook import in_notebook
from etude.session import last_words
from etude.session.first_step import own_update
from etude.session.first_step.trial import try_validation
from etude.session.last_words import relative
from etude.session.records import close_own_history, keep_own_history, open_status, writers_of
from etude.session.recovery.locks import Locks
from etude.session.recovery.resume import Resume
from etude.session.recovery.stores import Stores
from etude.session.run_folder import RunFolder
from etude.session.watch import wall_time
from etude.session.watch.guards import Guards
from etude.session.watch.slow_steps import SlowSteps
from etude.session.watch.wall_time import Sampler
from etude.session.watch.watchdog import start_pulse
from etude.units import counted

if TYPE_CHECKING:
    from etude.building.options import Options
    from etude.config.tree import Tree
    from etude.core.run import Run
    from etude.dist.jobs.heartbeat import Heartbeat
    from etude.plan import Plan
    from etude.session.watch.status import Status


class Session:
    """A context around the training of a built run. What is opened in this order is closed in the reverse one:

    .. code-block:: text

        folder      chosen, made with the first records        removed if the run never began
        console     log.txt, the terminal                      last words
        locks       the folder, the place of checkpoints       released
        faults      those of --chaos
        store       the checkpoint to resume from, verified    the last save
        signals     and the time limit                         handlers as before
        watchdog    reports steps that hang                    stopped
        writers     metrics, ledger, trackers                  closed
        resume      the state into the run; the generators right before the first step
        heartbeat   of one of several ranks                    waits for the others
        status      status.json, and where the time goes       the end of the run

    An error that the config caused is reported with its place in the config. A request to stop ends the run.
    """

    #: Whether only the owner may read the run's folder.
    private = True

    def __init__(
        self,
        run: Run,
        options: Options,
        *,
        tree: Tree | None = None,
        lasting: bool = True,
        began: float | None = None,
        fresh: Collection[Path] = (),
        given: Sequence[str] = (),
        flags: Mapping[str, Any] | None = None,
        plan: Plan | None = None,
        writers: Sequence[Any] = (),
    ) -> None:
        #: What ``etude.train`` was called with: the config as a script has it, and the overrides.
        self.given = given
        #: What decides results and is not in the config: flags of the command line, and how many processes train.
        self.flags = dict(flags or {}) | ({"processes": run.world.size} if run.world.is_many else {})
        #: What the run was asked for: its own plan, or of a script's run what it was given, in the same words.
        self.plan = run.plan if plan is None else plan
        self.run, self.options, self.tree, self.lasting = run, options, tree, lasting
        self.writers = list(writers)
        self.began = time.monotonic() if began is None else began
        self.console = Console(quiet=True)
        self.folder = RunFolder(run, options, tree, flags=self.flags, fresh=fresh, private=self.private)
        self.locks: Locks | None = None
        self.guards: Guards | None = None
        self.stores: Stores | None = None
        self._pulse: Heartbeat | None = None
        self.status: Status | None = None
        self.slow = SlowSteps(run, say=self._tell)
        self.sampler = Sampler(run, self.slow)
        self._begun_at = 0

    def __enter__(self) -> Session:
        drawn = random.getstate()
        if self.lasting:
            self.folder.open()
        try:
            self._open()
            self._try_out()
            self.status = open_status(self)
            if self.locks is not None and self.guards is not None:
                self.locks.watch(self.guards.watchdog, lasting=self.lasting)
        except BaseException as error:
            self._shut(error, discard=self.locks is not None and not self.locks.refused)
            self.run.events.close()
            raise
        # Packages draw while they are imported (rich does, at a terminal), and no run may depend on which ones it has.
        random.setstate(drawn)
        self._begun_at = self.run.done
        self.sampler.seconds[wall_time.START] = time.monotonic() - self.began
        # Other ranks say why rank 0 had to wait; of those alone nobody reads it.
        is_read = self.status is not None or self.run.peers is not None
        if is_read or (self.run.world.is_main and not self.options.quiet):
            self.slow.start()
            self.sampler.start()
        if self.status is not None:
            self.status.note_start()
        return self

    def _open(self) -> None:
        """Lock and find a checkpoint before anything is written; take its state when the writers are there."""
        run = self.run
        try:
            log = run.folder / "log.txt" if run.folder and run.world.is_main else None
            quiet = self.options.quiet or not run.world.is_main
            self.console = Console(log=log, quiet=quiet, notebook=in_notebook())
        except OSError as error:
            raise SaveError(f"{error.filename}: {error.strerror} ({errorcode.get(error.errno or 0, '?')})") from error
        locks, guards = self._lock(self.console.say, renew=self._renew)
        stores = self.stores = Stores(run, self.options, locks, say=self.console.say)
        if run.folder is not None:
            stores.open(run.folder)
        guards.listen()
        self._compare_code()
        if run.world.is_main:
            run.events.writers += [*writers_of(run, self.plan, self.writers), self.console]
        elif run.ledger and run.folder is not None and run.folder.is_dir():
            keep_own_history(run, run.folder)
        Resume(run, self.options, stores, say=self.console.say, plan=self.plan, tree=self.tree).restore()
        guards.begin_attempt()
        self.console.watch(self._where)
        if run.peers is not None:
            self._pulse = start_pulse(run)

    def _lock(self, say: Callable[[str], Any], *, renew: Callable[[], None] | None = None) -> tuple[Locks, Guards]:
        """Lock the folder, and plan the faults of this rank."""
        run = self.run
        self.locks = locks = Locks(run, say=say, tree=self.tree)
        self.guards = guards = Guards(run, self.options, say=say, began=self.began, plan=self.plan)
        if run.peers is None:
            locks.take(guards.stops, renew=renew)
        else:
            group.first(lambda: locks.take(guards.stops, renew=renew))
        guards.plan_faults()
        return locks, guards

    def _renew(self) -> None:
        """Record the run once more in a folder that was deleted meanwhile."""
        self.folder.renew()
        if self.run.folder is not None:
            self.console.reopen(self.run.folder / "log.txt")

    def _compare_code(self) -> None:
        """Say which files of the project have changed since the run began; refuse that under ``--strict``."""
        if self.options.resume is None or self.run.folder is None:
            return

        def compare() -> None:
            for line in self.folder.changed_code():
                self._tell(line)

        if self.run.peers is not None:
            group.first(compare)
        else:
            compare()

    def _tell(self, line: str) -> None:
        self.console.say(line)

    def _try_out(self) -> None:
        """Find mistakes in the user's code that show with the first batch."""
        try_validation(self.run)
        own_update.watch(self.run)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Stopped):
            self.run.stop(error.reason, exit_code=error.exit_code)
            self._close(None)
            return True
        mistake = self._explained(error)
        if error is not None:
            point_out(mistake or error, self.run.plan)
        if mistake is None:
            self._close(error)
            return False
        self._close(mistake)
        raise mistake from error

    def _explained(self, error: BaseException | None) -> EtudeError | None:
        """Return the error to report instead: a lost process, or a mistake in the config that shows before the first
        step."""
        if not isinstance(error, Exception):
            return None
        gone = self.locks.lost_folder(error) if self.locks is not None else None
        if gone is not None:
            return gone
        lost = group.lost_peer(error, step=self.run.done) if self.run.peers is not None else None
        if lost is not None or self.run.done != self._begun_at:
            return None if lost is error else lost
        found = dialects.of(self.run.plan).explain(error, self.run.plan)
        return None if found is error else found

    def _close(self, error: BaseException | None) -> None:
        self.sampler.stop()
        self.slow.stop()
        closing = time.monotonic()
        self.console.rest()
        for loader in self.run.data.values():
            close = getattr(loader, "close", None)
            if close is not None:
                close()
        unused = error is not None and self._is_unused(error)
        reported = getattr(error, "etude_reported", error)
        if isinstance(reported, Diverged) and self.run.history is not None and not unused:
            reported.args = (f"{reported}; `etude replay {relative(self.run.folder)} --until-spike` shows it",)  # type: ignore[arg-type]
        try:
            self._shut(error, discard=unused)
        except BaseException as failed:
            error = error or failed
            raise
        finally:
            self.sampler.seconds[wall_time.END] = time.monotonic() - closing
            self._say_last_words(error, unused=unused)
            if self.status is not None and not unused:
                self.status.end(error, note=self._advice())
            self.run.events.close(self.console.say)
            close_own_history(self.run)
            self._part(error)

    def _shut(self, error: BaseException | None, *, discard: bool) -> None:
        """Wait for the last save, then let go. Remove the folder while nobody else can enter it, if ``discard``."""
        if self.locks is None or self.guards is None:
            return
        try:
            if error is None:
                self.locks.require_presence()
            if self.stores is not None:
                self.stores.close(error)
        except BaseException as failed:
            error = error or failed
            raise
        finally:
            self.guards.close(error)
            if discard:
                self.folder.discard()
            self.locks.release()

    def _part(self, error: BaseException | None) -> None:
        """Wait for the other ranks at the end: a rank that leaves early would look like a lost one."""
        if self._pulse is not None:
            self._pulse.stop()
        if error is None:
            group.barrier()

    def _advice(self) -> str:
        """Return what to try against waiting for data, if the run did."""
        loader = self.run.data.get("train")
        workers, size = getattr(loader, "workers", None), getattr(loader, "batch_size", None)
        return wall_time.advice(
            self.sampler.seconds,
            workers=workers if isinstance(workers, int) else None,
            batch_size=size if isinstance(size, int) else None,
        )

    def _is_unused(self, error: BaseException) -> bool:
        """Return whether a start that failed has done nothing in its folder. One that is resumed counts its attempts
        there.
        """
        return self.options.resume is None and self.folder.is_unused()

    def _where(self) -> dict[str, Any]:
        run, latest = self.run, self.run.events.latest
        return {
            "step": run.step,
            "steps": run.total_steps,
            "epoch": run.epoch,
            "epochs": run.max_epochs,
            "loss": latest.get("loss"),
            "lr": latest.get("lr"),
            "rate": latest.get("throughput/steps_per_second"),
        }

    def _say_last_words(self, error: BaseException | None, *, unused: bool) -> None:
        """Say what came out, where the time went, and how to continue."""
        run = self.run
        if error is None:
            chance = self.status.by_chance() if self.status is not None else ()
            lines = last_words.results(run, time.monotonic() - self.began, self.sampler.seconds, chance, self._advice())
            for line in lines:
                self.console.say(line)
        else:
            # The error itself is printed by whoever catches it; only the log needs it here.
            self.console.say(f"ended by {type(error).__name__} after {counted(run.done, 'step')}", more=f": {error}")
        if run.folder is not None and not unused:
            for line in last_words.how_to_resume(run, self.options, self.given, unfinished=error is not None):
                self.console.say(line)
