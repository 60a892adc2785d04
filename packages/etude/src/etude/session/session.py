"""Wraps the training of a run: folder, writers, checkpoints, signals, and the summary at the end."""

from __future__ import annotations

import json
import random
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from errno import errorcode
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

from etude import dialects
from etude.building.components import build_component
from etude.building.options import Options
from etude.config.dump import flat, public_files, public_override, snapshot
from etude.config.tree import Tree
from etude.core.run import Run
from etude.dialects.config_lines import point_out
from etude.dist import group
from etude.dist.jobs import reports
from etude.dist.jobs.heartbeat import Heartbeat
from etude.errors import ConfigError, Diverged, EtudeError, ResumeError, SaveError, Stopped, UserError, printable
from etude.events.console import Console, number
from etude.events.history import History, LiveCurves
from etude.events.jsonl import Jsonl
from etude.events.media import Media
from etude.hooks.signals import SIGNALS
from etude.ledger.rows import FILE as LEDGER
from etude.ledger.writer import Ledger, Noting
from etude.plan import Plan
from etude.preview.notebook import in_notebook
from etude.session import folder as folders
from etude.session import lives, own_update, wall_time
from etude.session.recovery import Recovery
from etude.session.status import Status, write_facts
from etude.session.trial import try_validation
from etude.session.wall_time import Sampler
from etude.session.watchdog import start_pulse
from etude.units import counted, duration

_CTRL_C, _SIGTERM = SIGNALS["SIGINT"][1], SIGNALS["SIGTERM"][1]


def open_session(run: Run, options: Options, **around: Any) -> Session:
    """Return the context to train ``run`` in. A run that drives itself keeps its own log and checkpoints."""
    kind = GuardedSession if dialects.of(run.plan).drives_itself else Session
    return kind(run, options, **around)


class Session:
    """A context around the training of a built run: opens what it needs, and always prints how it ended.

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
        self.fresh = fresh
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
        self.recovery: Recovery | None = None
        self._pulse: Heartbeat | None = None
        self.status: Status | None = None
        self.sampler = Sampler(run)
        #: Folders that this start has made, the run's own first; none where that was there before.
        self._made: list[Path] = []
        self._begun_at = 0
        self._before = lives.Before()

    def __enter__(self) -> Session:
        drawn = random.getstate()
        if self.lasting:
            self._open_folder()
        try:
            self._open()
            self._try_out()
            self._open_status()
            if self.recovery is not None:
                self.recovery.watch_folder(lasting=self.lasting)
        except BaseException as error:
            if self.recovery is not None:
                self.recovery.close(error, discard=self._discard if not self.recovery.refused else None)
            self.run.events.close()
            raise
        # Packages draw while they are imported (rich does, at a terminal), and no run may depend on which ones it has.
        random.setstate(drawn)
        self._begun_at = self.run.done
        self.sampler.seconds[wall_time.START] = time.monotonic() - self.began
        if self.status is not None or (self.run.world.is_main and not self.options.quiet):  # else nobody reads it
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
        self.recovery = Recovery(
            run, self.options, say=self.console.say, began=self.began, tree=self.tree, plan=self.plan, renew=self._renew
        )
        self.recovery.open()
        self._compare_code()
        if run.world.is_main:
            run.events.writers += [*self._writers(), self.console]
        self.recovery.restore()
        self.console.watch(self._where)
        if run.peers is not None:
            self._pulse = start_pulse(run)

    def _compare_code(self) -> None:
        """Say which files of the project have changed since the run began; refuse that under ``--strict``."""
        if self.options.resume is None or self.run.folder is None:
            return
        if self.run.peers is not None:
            group.first(self._say_what_changed)
        else:
            self._say_what_changed()

    def _say_what_changed(self) -> None:
        folder = self.run.folder
        files = list(self.tree.files)[:1] if self.tree is not None else []
        changed = folders.changed_code(folder, folders.code_roots(files)) if folder is not None else []
        if changed and self.options.strict:
            names = ", ".join(printable(str(one)) for one in changed)
            raise ConfigError(f"the code has changed since the run began: {names}", hint="--strict does not accept it")
        for one in changed:
            self._tell(f"changed since the run began: {printable(str(one))}")
            for line in one.first:
                self._tell(f"    {printable(line)}")

    def _tell(self, line: str) -> None:
        self.console.say(line)

    def _try_out(self) -> None:
        """Find mistakes in the user's code that show with the first batch."""
        try_validation(self.run)
        own_update.watch(self.run)

    def _open_status(self) -> None:
        """Write down what can be seen of the run from outside."""
        run = self.run
        run.events.writers.append(
            LiveCurves(run.total_steps) if in_notebook() and not self.options.quiet else History()
        )
        if run.folder is not None and self.lasting and run.world.is_main:
            spent = self.sampler.seconds
            plan = flat(self._plan_text()) | {f"--{name}": value for name, value in self.flags.items()}
            self.status = Status(
                run.folder, run, time_spent=spent, plan=plan, began=self.began,
                before=self._before if self.options.resume is not None else None,
                whole_process=bool(self.options.extras),
            )  # fmt: skip
            self.status.begin()
            write_facts(run.folder, run, self.tree)
            run.events.writers.append(self.status)

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
        gone = self.recovery.lost_folder(error) if self.recovery is not None else None
        if gone is not None:
            return gone
        lost = group.lost_peer(error, step=self.run.done) if self.run.peers is not None else None
        if lost is not None or self.run.done != self._begun_at:
            return None if lost is error else lost
        found = dialects.of(self.run.plan).explain(error, self.run.plan)
        return None if found is error else found

    def _close(self, error: BaseException | None) -> None:
        self.sampler.stop()
        closing = time.monotonic()
        self.console.rest()
        for loader in self.run.data.values():
            close = getattr(loader, "close", None)
            if close is not None:
                close()
        unused = error is not None and self._is_unused(error)
        if isinstance(error, Diverged) and self._has_ledger and not unused:
            error.args = (f"{error}; `etude replay {relative(self.run.folder)} --until-spike` shows it",)  # type: ignore[arg-type]
        try:
            if self.recovery is not None:
                self.recovery.close(error, discard=self._discard if unused else None)
        except BaseException as failed:
            error = error or failed
            raise
        finally:
            self.sampler.seconds[wall_time.END] = time.monotonic() - closing
            self._say_last_words(error, unused=unused)
            if self.status is not None and not unused:
                self.status.end(error, note=self._advice())
            self.run.events.close(self.console.say)
            self._part(error)

    @property
    def _has_ledger(self) -> bool:
        return any(isinstance(writer, Ledger) for writer in self.run.events.writers)

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
        return self.options.resume is None and self._has_done_nothing()

    def _has_done_nothing(self) -> bool:
        folder = self.run.folder
        if not self._made or folder is None or self.run.done:
            return False
        return not any((folder / "checkpoints").glob("*")) and not any(folder.glob("**/*.pth"))

    def _discard(self) -> None:
        """Remove the folder that this start has made, and parents that are empty again."""
        if self._made:
            shutil.rmtree(self._made[0], ignore_errors=True)
        with suppress(OSError):
            for folder in self._made[1:]:
                folder.rmdir()

    def _open_folder(self) -> None:
        run = self.run
        if run.folder is None:
            run.folder = group.first(self._choose_folder) if run.peers is not None else self._choose_folder()
        if run.folder is None or not run.world.is_main:
            return
        self._before = lives.look_before(run.folder)
        reports.remember_folder(run.folder)
        self._made = list(takewhile(self._is_new, [run.folder, *run.folder.parents]))
        self._record(run.folder, anew=self.options.restart)

    def _record(self, folder: Path, *, anew: bool) -> None:
        folders.make(
            folder,
            plan_text=self._plan_text(),
            files=public_files(self.tree) if self.tree else {},
            anew=anew,
            private=self.private,
            data=folders.fingerprints(self.run.data),
            flags=self.flags,
        )

    def _renew(self) -> None:
        """Record the run once more in a folder that was deleted meanwhile."""
        if self.run.folder is not None:
            self._record(self.run.folder, anew=True)
            write_facts(self.run.folder, self.run, self.tree)
            self.console.reopen(self.run.folder / "log.txt")

    def _choose_folder(self) -> Path | None:
        plan = self.run.plan
        return folders.choose_folder(plan, self.options) if plan is not None else self.options.folder

    def _is_new(self, path: Path) -> bool:
        return not path.exists() or path.absolute() in self.fresh

    def _plan_text(self) -> str:
        if self.tree is None:
            return ""
        return snapshot(self.tree) if self.run.plan is not None else f"{folders.HEADER}\n{snapshot(self.tree)}"

    def _writers(self) -> list[Any]:
        run = self.run
        if run.folder is None:
            return []
        own: list[Any] = [Jsonl(run.folder / "metrics.jsonl"), Jsonl(run.folder / "timing.jsonl", timing=True)]
        if run.ledger:
            own.append(Ledger(run.folder / LEDGER))
            run.hooks.add(Noting(own[-1]))
        named = self.plan.writers if self.plan is not None else ()
        given = [build_component(spec, folder=run.folder) for spec in named] + self.writers
        if not any(isinstance(writer, Media) for writer in given):
            own.append(Media(run.folder))
        return own + given

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
        run = self.run
        if error is None:
            self._say_results()
        else:
            # The error itself is printed by whoever catches it; only the log needs it here.
            self.console.say(f"ended by {type(error).__name__} after {counted(run.done, 'step')}", more=f": {error}")
        if run.folder is not None and not unused:
            self.console.say(f"  run     {relative(run.folder)}")
            self._say_how_to_resume(error)

    def _say_results(self) -> None:
        """Say what came out, and where the time went."""
        run = self.run
        reason = run.stopping or "finished"
        self.console.say(f"{reason}: {counted(run.done, 'step')} in {duration(time.monotonic() - self.began)}")
        for line in summary(run):
            self.console.say(line)
        for index, line in enumerate(wall_time.table(self.sampler.seconds)):
            self.console.say(f"  {'' if index else 'time':<7} {line}")
        if self.status is not None and (names := self.status.by_chance()):
            self.console.say(f"  chance  not deterministic: {', '.join(names)}")
        if advice := self._advice():
            self.console.say(f"  note    {advice}")

    def _say_how_to_resume(self, error: BaseException | None) -> None:
        """Say what is saved of a run that did not finish, and the command that continues it."""
        run = self.run
        if error is None and not run.exit_code:
            return
        if run.store is not None:
            newest, lost = run.store.newest(), run.store.lost(run)
            saved = relative(newest) if newest else "nothing yet"
            self.console.say(f"  saved   {saved}{f'; {lost}' if lost else ''}")
        elif run.exit_code:
            self.console.say("  saved   nothing: the run keeps no checkpoints")
        self.console.say(f"  resume  {resume_command(run, self.options, self.given)}")


class GuardedSession(Session):
    """A context around a run that drives itself: the lock and the final message. Log, checkpoints and folder have the
    layout of its own system."""

    private = False
    _marks: ExitStack | None = None

    def _tell(self, line: str) -> None:
        if self.run.world.is_main and not self.options.quiet:
            print(f"etude: {line}", file=sys.stderr)

    def _try_out(self) -> None:
        """Leave the other system's validation and updates to it."""

    def _open(self) -> None:
        self._marks = wall_time.mark_updates(self.run)
        self.recovery = Recovery(self.run, self.options, say=self.console.say, began=self.began)
        self.recovery.guard_driven()
        self._compare_code()
        folder = self.run.folder if self.run.world.is_main else None
        if folder is not None and not self._made and self.options.resume is None:
            self._record(folder, anew=True)  # the other systems begin a new run in the folder of an old one
        if self.run.world.is_many:
            self._pulse = start_pulse(self.run)

    def _close(self, error: BaseException | None) -> None:
        if self._marks is not None:
            self._marks.close()
        super()._close(error)

    def _is_unused(self, error: BaseException) -> bool:
        """Return whether the run's folder may be removed. Once the log's path is printed, only a user mistake or an
        unusable checkpoint allows that."""
        return isinstance(error, UserError | ResumeError) and self._has_done_nothing()

    def _say_last_words(self, error: BaseException | None, *, unused: bool) -> None:
        run = self.run
        if error is None and run.exit_code and not self.options.quiet and run.world.is_main:
            print(f"etude: {run.stopping}, saved; {resume_command(run, self.options, self.given)}", file=sys.stderr)


def end_script(run: Run) -> None:
    """Let the signal that has stopped a run end the script as well, as it would without Étude."""
    if run.exit_code == _CTRL_C:
        raise KeyboardInterrupt(run.stopping)
    if run.exit_code == _SIGTERM:
        raise SystemExit(_SIGTERM)


def summary(run: Run) -> list[str]:
    """Return the last and best results, for the end of the output."""
    lines = []
    if run.metrics:
        lines.append("  last    " + "  ".join(f"{name} {number(value)}" for name, value in run.metrics.items()))
    for hook in run.hooks:
        describe = getattr(hook, "summary", None)
        if callable(describe) and (text := describe()):
            lines.append(f"  {text}")
    return lines


def resume_command(run: Run, options: Options, call: Sequence[str] = ()) -> str:
    """Return how to continue this run: the command that was typed, with ``--resume``; in a script, the call.

    ``call`` is what ``etude.train`` was called with: the config, as it stands in a script, and the overrides.
    """
    if not options.extras:
        return _call(run, *call) if run.plan is not None else "trainer.fit(…, resume=True)"
    typed = list(options.extras.get("typed", sys.argv[1:]))
    for flag, given in (("--resume", options.resume), ("--chaos", options.chaos)):
        if given and flag in typed and given in typed[typed.index(flag) :]:
            del typed[typed.index(flag) : typed.index(flag) + 2]
    words = ["etude", *(public_override(word, "…") for word in typed if word != "--restart")]
    return shlex.join(words if "--resume" in words else [*words, "--resume"])


def _call(run: Run, config: str = "…", *overrides: str) -> str:
    """Return the call of ``etude.train`` that continues a run."""
    changes = [f"[{', '.join(quoted(public_override(text, '…')) for text in overrides)}]"] if overrides else []
    folder = quoted(relative(run.folder)) if run.folder is not None else "…"
    return f'etude.train({", ".join([config, *changes])}, options=etude.Options(folder={folder}, resume=""))'


def quoted(text: str) -> str:
    """Return ``text`` as a string of Python, in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def relative(path: Path | str) -> str:
    """Return ``path`` relative to the current folder if it is below it; a URL stays as it is."""
    if "://" in str(path):
        return str(path)
    try:
        return str(Path(path).resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)
