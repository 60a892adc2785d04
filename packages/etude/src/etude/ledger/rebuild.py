"""Builds a run again from its folder and runs it forward from one of its checkpoints, without writing into it.

The run has a temporary folder, and no writers, trackers or alerts. While it is open, this process cannot open, rename
or remove a file of the original run for writing, whatever a hook tries.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOBase
from pathlib import Path
from typing import Any

import numpy as np

from etude import compat, dialects
from etude.api import build_session, load_plan
from etude.building.options import Options
from etude.checkpoint.find import FOLDER
from etude.checkpoint.formats import folders
from etude.checkpoint.store import Store
from etude.config import run_files
from etude.core.hook import Hook
from etude.core.loop import train
from etude.core.run import Run
from etude.debug_options import DebugOptions
from etude.dist.jobs import reports
from etude.dist.world import World
from etude.errors import DataError, NoCheckpoint, Stopped, UserError, printable
from etude.fast_dataclass import replace
from etude.ledger import rows
from etude.ledger.code import code_of, moved
from etude.ledger.writer import is_diverged, loss_of, samples_of
from etude.plan import Plan

#: The columns of the ledger that a replay must give again.
_COMPARED = ("ids", "loss", "norm")
_count = 0


# -- what can be replayed ----------------------------------------------------------------------------------------------


def require_replayable(folder: Path) -> None:
    """Refuse a run that these processes cannot build again from its folder alone."""
    run_files.require_as_many(folder, World.from_environment().size)


def ledger_of(folder: Path) -> rows.Rows:
    """Return the ledger of this rank. Raise an error if it has no step."""
    ledger = rows.read(folder, World.from_environment().rank)
    if not len(ledger):
        raise UserError(f"{printable(str(folder))}: no step is recorded yet")
    return ledger


def newest_before(folder: Path, step: int) -> str:
    """Return the path of the newest checkpoint from which ``step`` can still be run; empty for the beginning."""
    plan, _ = load_plan(folder)
    first, before = int(ledger_of(folder)["step"][0]), kept(folder, plan)
    usable = [(done, path) for done, path in before if done < step]
    if usable:
        return max(usable)[1]
    word = why_not_from_the_beginning(folder, plan, first)
    if word:
        later = f"the first one that is kept is at step {min(before)[0]}" if before else "none is kept"
        raise NoCheckpoint(
            f"{printable(str(folder))}: there is no checkpoint before step {step} to start from ({later}), and {word}"
        )
    return ""


def kept(folder: Path, plan: Plan) -> list[tuple[int, str]]:
    """Return the checkpoints of a run that it can be resumed from, as step and path, oldest first."""
    if dialects.of(plan).drives_itself:
        every = [one for one in folders.checkpoints(str(folder)) if not one.purpose.startswith("best")]
        return sorted((one.step, one.path) for one in every if one.step > 0)
    hook = next((one.spec for one in plan.hooks if one.spec.name == "Checkpoint"), None)
    place = str((hook.args.get("folder") if hook is not None else "") or folder / FOLDER)
    entries = Store(place, write=False).entries() if "://" in place or os.path.isdir(place) else []
    whole = [one for one in entries if one.manifest.kind == "full" and not one.manifest.tag]
    return [(one.step, f"{place.rstrip('/')}/{one.name}") for one in whole]


def why_not_from_the_beginning(folder: Path, plan: Plan, first: int) -> str:
    """Return why a run cannot be repeated from its beginning; empty if it can."""
    if first > 1:
        return f"its ledger begins with step {first}"
    source: Any = plan.source
    for key in dialects.of(plan).seed_key:
        source = source.get(key) if hasattr(source, "get") else None
    if dialects.of(plan).seed_key and source is None and "seed" not in _flags(folder):
        return "the beginning has a random seed that only its checkpoints hold: write a seed into the config"
    return ""


def _flags(folder: Path) -> dict[str, Any]:
    found = run_files.environment(folder).get("flags")
    return {str(name).replace("-", "_"): value for name, value in found.items()} if isinstance(found, dict) else {}


# -- building ----------------------------------------------------------------------------------------------------------


@contextmanager
def rebuilt(folder: Path, checkpoint: str) -> Iterator[tuple[Run, Any]]:
    """Build the run of a folder again, to continue from ``checkpoint``, and yield it with its silent session."""
    plan = _as_long_as_then(load_plan(folder)[0], folder, checkpoint)
    spoken, flags = dialects.of(plan), _flags(folder)
    World.from_environment().announce()
    compat.install()
    with _scratch() as scratch, code_of(folder) as code, untouched(folder):
        plan = plan if code is None else replace(plan, files=moved(plan.files, folder, code))
        start = os.path.abspath(checkpoint) if checkpoint and "://" not in checkpoint else checkpoint
        if start and spoken.drives_itself:
            start = _linked(start, scratch / "run")
        options = Options(folder=scratch / "run", resume=start or None, quiet=True, extras=flags)
        trial = DebugOptions(
            **{name: flags[name] for name in ("limit_batches", "overfit", "device", "seed") if flags.get(name)}
        )
        try:
            with muted(True):  # it warns of the config again
                run, session = build_session(replace(spoken.silenced(plan), ledger=False), options, trial=trial)
        except DataError as error:
            raise UserError(f"{printable(str(folder))} cannot be replayed without its data: {error}") from error
        yield run, session


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a new folder, which ranks have together."""
    global _count
    common = reports.folder()
    if common is not None:
        _count += 1
        yield common / f"replay-{_count}"  # the launcher removes it
        return
    with tempfile.TemporaryDirectory(prefix="etude-replay-") as made:
        yield Path(made)


def _linked(checkpoint: str, folder: Path) -> str:
    """Return a link to a checkpoint in ``folder``: some systems save where the checkpoint is that they resume from."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / os.path.basename(checkpoint)
    with suppress(FileExistsError):  # another rank was faster
        link.symlink_to(checkpoint)
    return str(link)


def _as_long_as_then(plan: Plan, folder: Path, checkpoint: str) -> Plan:
    """Return the plan with the length that the process had which continued from a checkpoint.

    A run keeps its first plan. If a resume has made it longer, only ``status.json`` has the new length.
    """
    lives, start = run_files.lives(folder), step_of(checkpoint)
    went_on = [number for number, life in enumerate(lives) if life["from"] <= start]
    said = run_files.status(folder).get("plan", {})
    if not start or not went_on or went_on[-1] != len(lives) - 1:
        return plan
    lengths = {name: said.get(f"train.{name}") for name in ("epochs", "steps")}
    if not any(type(value) is int for value in lengths.values()):
        return plan
    return replace(plan, train=replace(plan.train, **lengths))


def step_of(checkpoint: str) -> int:
    """Return after how many steps a checkpoint of Étude was made; 0 for the beginning of the run."""
    number = os.path.basename(checkpoint).rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


# -- writing nothing ---------------------------------------------------------------------------------------------------

_protected: list[str] = []
_WRITES = ("w", "a", "x", "+")
#: What changes files, and which of its arguments are paths that it changes.
_CHANGES = {
    "open": slice(0, 1), "os.remove": slice(0, 1), "os.rename": slice(0, 2), "os.rmdir": slice(0, 1),
    "os.mkdir": slice(0, 1), "os.truncate": slice(0, 1), "os.link": slice(1, 2), "os.symlink": slice(1, 2),
}  # fmt: skip
_watching = False


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Raise an error in this process where code is about to change a file below ``folder``."""
    global _watching
    if not _watching:  # an audit hook stays as long as the process
        sys.addaudithook(_look)
        _watching = True
    _protected.append(os.path.join(os.path.realpath(folder), ""))
    try:
        yield
    finally:
        _protected.pop()


def _look(event: str, args: tuple[Any, ...]) -> None:
    if not _protected or event not in _CHANGES:
        return
    if event == "open":
        mode, flags = args[1], args[2]
        writes = any(letter in mode for letter in _WRITES) if isinstance(mode, str) else bool(flags & _WRITING)
        if not writes:
            return
    for path in args[_CHANGES[event]]:
        if isinstance(path, str | bytes | os.PathLike):
            text = os.fsdecode(path)
            # What a link stands for stays; the link itself is what is removed or replaced.
            whole = os.path.realpath(text) if event == "open" else _place_of(text)
            if whole.startswith(_protected[-1]):
                raise UserError(f"a replay writes nothing into the run, and something is about to change {text}")


_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _place_of(path: str) -> str:
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


class _Discard(TextIOBase):
    """A stream that discards what is written. Handlers of logs may hold on to it."""

    def write(self, text: str) -> int:
        return len(text)


@contextmanager
def muted(on: bool) -> Iterator[None]:
    """Print nothing of what the runner of another system says."""
    if not on:
        yield
        return
    with redirect_stdout(_Discard()), redirect_stderr(_Discard()):
        yield


# -- running -----------------------------------------------------------------------------------------------------------


def run_to(
    step: int, run: Run, session: Any, ledger: rows.Rows, hooks: Sequence[Any] = (), *, save: bool = False
) -> Comparing:
    """Run up to ``step`` with additional hooks, and compare each step with the ledger.

    With ``save``, the runner of another system does what it does after that step, too: it may save a checkpoint.

    Hooks with a method ``finish`` are called with the run when a loss that is not finite ends the step, and after all
    other hooks where the runner of another system drives.
    """
    comparing = Comparing(ledger, step)
    for hook in (*hooks, comparing):
        run.hooks.add(hook)

    def finish(run: Run) -> None:
        for hook in hooks:
            getattr(hook, "finish", lambda run: None)(run)

    if run.train_fn is not None:
        comparing.arrived, comparing.beyond = finish, save
    with muted(run.train_fn is not None), session:
        try:
            train(run)
        except Exception as error:
            if not is_diverged(error) or run.step + 1 != step or run.stage != "step":
                raise
            finish(run)
            comparing.compare(run)
    if comparing.reached < step:
        raise UserError(f"the replay ended after step {run.step}: {run.stopping or 'the run is shorter now'}")
    return comparing


class Comparing(Hook):
    """Compares each step with the ledger, and stops the run after the last one that is asked for."""

    priority = 1 << 31

    def __init__(self, ledger: rows.Rows, last: int) -> None:
        self.ledger, self.last = ledger, last
        #: The first step that came out differently, and in what; None if all are equal.
        self.different: tuple[int, str] | None = None
        #: How many steps were done before the first one that was seen here.
        self.start = 0
        self.epoch = self.reached = 0
        #: A line for each step: its loss, and whether it is bitwise as recorded.
        self.history: list[str] = []
        #: Called with the run after the last step, before anything else happens to it.
        self.arrived: Callable[[Run], None] = lambda run: None
        #: Whether the run ends only when the next step begins.
        self.beyond = False

    def before_step(self, run: Run) -> None:
        if self.beyond and run.step >= self.last:
            raise Stopped("replayed", 0)

    def after_step(self, run: Run) -> None:
        self.compare(run)
        if self.reached >= self.last:
            self.arrived(run)
            if run.train_fn is None:
                run.stop("replayed")
            elif not self.beyond:  # its runner would save and evaluate first
                raise Stopped("replayed", 0)

    def compare(self, run: Run) -> None:
        """Compare the step that has just been done."""
        self.start = self.start if self.history else run.step
        self.reached = step = run.step + 1
        self.epoch = run.epoch
        loss = number(loss_of(run))
        if self.different is None:
            norm = number(run.norm)
            losses, norms = (np.array([np.nan if one is None else one]) for one in (loss, norm))
            now = rows.made(step, losses, norms, [samples_of(run)], 0)[0]
            then = self.ledger[step - int(self.ledger["step"][0])]
            wrong = [name for name in _COMPARED if now[name].tobytes() != then[name].tobytes()]
            if wrong:
                self.different = step, described(wrong[0], then, now)
        run.norm = None
        verdict = "as recorded" if self.different is None else "different" if self.different[0] == step else ""
        shown = float("nan") if loss is None else loss
        self.history.append(f"step {step:<8} loss {shown:<14.9g} {verdict}".rstrip())


def described(name: str, then: Any, now: Any) -> str:
    """Return in words how a step differs from its row."""
    if name == "ids":
        return "it had other samples"
    word = {"loss": "the loss", "norm": "the norm of the gradients"}[name]
    return f"{word} was {then[name]:.9g} and is {now[name]:.9g} now"


def number(value: Any) -> float | None:
    """Return a loss or a norm as a number."""
    return None if value is None else float(value)
