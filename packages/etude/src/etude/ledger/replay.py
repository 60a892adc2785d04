"""Runs a step of a finished or running run again, from the checkpoint before it, and compares it with the ledger.

Nothing is written into the run: the replay has a temporary folder, and no writers, trackers, alerts or checkpoints.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from etude import dialects
from etude.api import build_session, load_plan
from etude.building.options import Options
from etude.checkpoint.find import FOLDER
from etude.checkpoint.store import Store
from etude.config import run_files
from etude.core.hook import Hook
from etude.core.loop import train
from etude.core.run import Run
from etude.errors import Diverged, NoCheckpoint, UserError, printable
from etude.fast_dataclass import replace
from etude.ledger import rows
from etude.ledger.anatomy import Anatomy, ModuleNote, losses_per_sample
from etude.ledger.code import changed_code, code_of, moved
from etude.plan import Plan
from etude.report.runs import find_run

#: Hooks that write, send or measure, and change nothing in training.
_SILENT = ("Checkpoint", "Alerts", "Profiler")
#: The columns of the ledger that a replay must give again.
_COMPARED = ("ids", "loss", "norm")


@dataclass
class Replayed:
    """A step that was run again, and what happened in it."""

    folder: Path
    step: int
    steps: int
    epoch: int
    #: The checkpoint that the replay started from; empty for the beginning of the run.
    checkpoint: str
    #: How many steps were run, this one included.
    repeated: int
    #: The first step that came out differently than the ledger says, and in what; None if all are equal.
    different: tuple[int, str] | None
    recorded: dict[str, Any]
    ids: list[Any]
    origins: list[str]
    loss: float | None
    sample_losses: list[float] | None
    modules: list[ModuleNote]
    #: A line for each step that was run: its loss, and whether it is bitwise as recorded.
    history: list[str]
    first_bad: tuple[str, str] | None
    changed_code: list[str]
    batch: Any = field(repr=False, default=None)
    outputs: Any = field(repr=False, default=None)
    gradients: dict[str, Any] = field(repr=False, default_factory=dict)
    run: Run | None = field(repr=False, default=None)

    def save(self, path: str | Path) -> None:
        """Write batch, outputs and gradients with ``torch.save``."""
        import torch

        content = {"step": self.step, "ids": self.ids, "batch": self.batch, "gradients": self.gradients}
        torch.save({**content, "outputs": _detached(self.outputs)}, path)


def replay(
    run: str | Path,
    step: int | None = None,
    *,
    until_spike: bool = False,
    inspect: Callable[[Replayed], Any] | None = None,
) -> Replayed:
    """Run ``step`` of ``run`` again and return what happened in it. Steps count from one, as in log lines.

    ``until_spike`` chooses the step with the largest jump of the loss, or the first loss that is not finite.
    ``inspect`` is called while the run still is as it was after that step.
    """
    folder = find_run(str(run))
    require_replayable(folder)
    ledger = rows.read(folder)
    if not len(ledger):
        raise UserError(f"{printable(str(folder))}: no step is recorded yet")
    step = worst_step(ledger) if until_spike or step is None else step
    first, last = int(ledger["step"][0]), int(ledger["step"][-1])
    if not first <= step <= last:
        raise UserError(f"{printable(str(folder))} has no step {step}; its ledger has steps {first} to {last}")
    checkpoint = newest_before(folder, step)
    if not checkpoint and first > 1:
        raise NoCheckpoint(f"{printable(str(folder))}: there is no checkpoint before step {step} to start from")
    with rebuilt(folder, checkpoint) as (live, session):
        anatomy, comparing = Anatomy(step), Comparing(ledger, step)
        for hook in (anatomy, comparing):
            live.hooks.add(hook)
        with session:
            start = live.step
            try:
                train(live)
            except Diverged:
                if live.step + 1 != step or live.stage != "step":
                    raise
                anatomy.finish(live)
                comparing.compare(live)
        require_reached(live, comparing, step)
        ids = _ids(anatomy.task)
        found = Replayed(
            folder=folder,
            step=step,
            steps=last,
            epoch=comparing.epoch,
            checkpoint=os.path.basename(checkpoint),
            repeated=step - start,
            different=comparing.different,
            recorded={name: ledger[step - first][name].item() for name in ("loss", "norm")},
            ids=ids,
            origins=[origin_of_sample(live.data["train"], one) for one in ids],
            loss=_number(live.loss),
            sample_losses=losses_per_sample(live, anatomy.outputs),
            modules=list(anatomy.modules.values()),
            history=comparing.history,
            first_bad=anatomy.first_bad,
            changed_code=changed_code(folder),
            batch=anatomy.batch,
            outputs=anatomy.outputs,
            gradients=anatomy.gradients,
            run=live,
        )
        if inspect is not None:
            inspect(found)
        return found


def require_replayable(folder: Path) -> None:
    """Refuse a run that one process cannot build again from its folder alone."""
    flags = run_files.environment(folder).get("flags")
    processes = flags.get("processes", 1) if isinstance(flags, dict) else 1
    if isinstance(processes, int) and processes > 1:
        raise UserError(f"{printable(str(folder))} was trained by {processes} processes; only runs of one are replayed")
    plan, _ = load_plan(folder)
    if dialects.of(plan).drives_itself:
        raise UserError(f"{printable(str(folder))} is a run of a {plan.dialect} config; only native runs are replayed")


@contextmanager
def rebuilt(folder: Path, checkpoint: str) -> Iterator[tuple[Run, Any]]:
    """Build the run of a folder again, to continue from ``checkpoint``, and yield it with its silent session."""
    plan = _as_long_as_then(load_plan(folder)[0], folder, step_of(checkpoint))
    with tempfile.TemporaryDirectory(prefix="etude-replay-") as scratch, code_of(folder) as code:
        plan = plan if code is None else replace(plan, files=moved(plan.files, folder, code))
        options = Options(folder=Path(scratch, "run"), resume=checkpoint or None, quiet=True)
        yield build_session(silent(plan), options)


def _as_long_as_then(plan: Plan, folder: Path, start: int) -> Plan:
    """Return the plan with the length that the process had which went on from step ``start``.

    A run keeps its first plan. If a resume has made it longer, only ``status.json`` has the new length.
    """
    lives = run_files.lives(folder)
    went_on = [number for number, life in enumerate(lives) if life["from"] <= start]
    said = run_files.status(folder).get("plan", {})
    if not start or not went_on or went_on[-1] != len(lives) - 1:
        return plan
    lengths = {name: said.get(f"train.{name}") for name in ("epochs", "steps")}
    if not any(type(value) is int for value in lengths.values()):
        return plan
    return replace(plan, train=replace(plan.train, **lengths))


def step_of(checkpoint: str) -> int:
    """Return after how many steps a checkpoint was made; 0 for the beginning of the run."""
    number = os.path.basename(checkpoint).rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def require_reached(run: Run, comparing: Comparing, step: int) -> None:
    """Refuse a replay that has not come to its step."""
    if comparing.reached < step:
        raise UserError(f"the replay ended after step {run.step}: {run.stopping or 'the run is shorter now'}")


def silent(plan: Plan) -> Plan:
    """Return a plan that trains the same and writes nothing."""
    hooks = tuple(hook for hook in plan.hooks if hook.spec.name not in _SILENT)
    return replace(plan, hooks=hooks, writers=(), ledger=False)


class Comparing(Hook):
    """Compares each step with the ledger, and stops the run after the last one that is asked for."""

    priority = 1 << 30

    def __init__(self, ledger: rows.Rows, last: int) -> None:
        self.ledger, self.last = ledger, last
        self.different: tuple[int, str] | None = None
        self.epoch = self.reached = 0
        self.history: list[str] = []

    def after_step(self, run: Run) -> None:
        self.compare(run)
        if self.reached >= self.last:
            run.stop("replayed")

    def compare(self, run: Run) -> None:
        """Compare the step that has just been done."""
        self.reached = step = run.step + 1
        self.epoch = run.epoch
        if self.different is None:
            task = getattr(run.data.get("train"), "task", None)
            loss, norm = _number(run.loss), _number(run.norm)
            now = rows.made(
                step,
                np.array([np.nan if loss is None else loss]),
                np.array([np.nan if norm is None else norm]),
                [None if task is None else task.indices],
                0,
            )[0]
            run.norm = None
            then = self.ledger[step - int(self.ledger["step"][0])]
            wrong = [name for name in _COMPARED if now[name].tobytes() != then[name].tobytes()]
            if wrong:
                self.different = step, described(wrong[0], then, now)
        verdict = "as recorded" if self.different is None else "different" if self.different[0] == step else ""
        self.history.append(
            f"step {step:<8} loss {float('nan') if run.loss is None else float(run.loss):<14.9g} {verdict}".rstrip()
        )


def described(name: str, then: Any, now: Any) -> str:
    """Return in words how a step differs from its row."""
    if name == "ids":
        return "it had other samples"
    word = {"loss": "the loss", "norm": "the norm of the gradients"}[name]
    return f"{word} was {then[name]:.9g} and is {now[name]:.9g} now"


def newest_before(folder: Path, step: int) -> str:
    """Return the path of the newest checkpoint from which ``step`` can still be run; empty for the beginning."""
    plan, _ = load_plan(folder)
    hook = next((one.spec for one in plan.hooks if one.spec.name == "Checkpoint"), None)
    place = str((hook.args.get("folder") if hook is not None else "") or folder / FOLDER)
    if "://" not in place and not os.path.isdir(place):
        return ""
    entries = Store(place, write=False).entries()
    whole = [one for one in entries if one.step < step and one.manifest.kind == "full" and not one.manifest.tag]
    return f"{place.rstrip('/')}/{whole[-1].name}" if whole else ""


def worst_step(ledger: rows.Rows) -> int:
    """Return the first step whose loss is not finite; else the one whose loss jumps most above those before it."""
    losses = ledger["loss"]
    bad = np.flatnonzero(~np.isfinite(losses))
    if len(bad):
        return int(ledger["step"][bad[0]])
    window = 20
    if len(losses) <= window:
        return int(ledger["step"][int(np.argmax(losses))])
    before = np.lib.stride_tricks.sliding_window_view(losses[:-1], window)
    center, spread = np.median(before, axis=1), before.std(axis=1) + 1e-12
    return int(ledger["step"][window + int(np.argmax((losses[window:] - center) / spread))])


def origin_of_sample(loader: Any, index: Any) -> str:
    """Return where a sample comes from, as file and line where the dataset knows; empty if it does not tell."""
    dataset = getattr(loader, "dataset", None)
    try:
        while dataset is not None:
            own = getattr(dataset, "origin", None)
            if callable(own):
                return str(own(index))
            for name in ("samples", "paths"):
                listed = getattr(dataset, name, None)
                if isinstance(listed, Sequence) and len(listed):
                    one = listed[index]
                    return str(one[0] if isinstance(one, tuple) else one)
            if hasattr(dataset, "indices"):
                index = dataset.indices[index]
            dataset = getattr(dataset, "dataset", None)
    except Exception:  # a dataset that cannot tell is no reason not to show the step
        return ""
    return ""


def _ids(task: Any) -> list[Any]:
    indices = getattr(task, "indices", None)
    return [] if indices is None else list(getattr(indices, "tolist", lambda: indices)())


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _detached(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach()
    if isinstance(value, dict):
        return {key: _detached(item) for key, item in value.items()}
    return type(value)(map(_detached, value)) if type(value) in (list, tuple) else value
