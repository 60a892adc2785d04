"""Runs a step of a finished or running run again, from the checkpoint before it, and shows what happened in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from etude.core.run import Run
from etude.dist import group
from etude.errors import UserError, printable
from etude.ledger import rows
from etude.ledger.anatomy import Anatomy, ModuleNote, losses_per_sample
from etude.ledger.code import changed_code
from etude.ledger.rebuild import ledger_of, newest_before, number, rebuilt, require_replayable, run_to
from etude.ledger.writer import loss_of
from etude.report.runs import find_run


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
    #: Of each rank, if there are several: the first step that came out differently, and its samples in this step.
    ranks: list[tuple[tuple[int, str] | None, list[Any]]] = field(default_factory=list)
    batch: Any = field(repr=False, default=None)
    outputs: Any = field(repr=False, default=None)
    gradients: dict[str, Any] = field(repr=False, default_factory=dict)
    run: Run | None = field(repr=False, default=None)

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return 0 if self.run is None else self.run.world.rank

    @property
    def as_recorded(self) -> bool:
        """Whether every step came out bitwise as in the ledger, on every rank."""
        return self.different is None and all(different is None for different, _ in self.ranks)

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
    ledger = ledger_of(folder)
    require_replayable(folder)
    step = worst_step(ledger) if until_spike or step is None else step
    first, last = int(ledger["step"][0]), int(ledger["step"][-1])
    if not first <= step <= last:
        raise UserError(f"{printable(str(folder))} has no step {step}; its ledger has steps {first} to {last}")
    checkpoint = newest_before(folder, step)
    with rebuilt(folder, checkpoint) as (live, session):
        anatomy = Anatomy(step)
        comparing = run_to(step, live, session, ledger, [anatomy])
        ids = _ids(anatomy.samples)
        found = Replayed(
            folder=folder,
            step=step,
            steps=last,
            epoch=comparing.epoch,
            checkpoint=os.path.basename(checkpoint),
            repeated=step - comparing.start,
            different=comparing.different,
            recorded={name: ledger[step - first][name].item() for name in ("loss", "norm")},
            ids=ids,
            origins=[origin_of_sample(live.data.get("train"), one) for one in ids],
            loss=number(loss_of(live)),
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
        if live.world.is_many:
            found.ranks = group.gather((comparing.different, ids))
        if inspect is not None:
            inspect(found)
        return found


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


def _ids(indices: Any) -> list[Any]:
    return [] if indices is None else list(getattr(indices, "tolist", lambda: indices)())


def _detached(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach()
    if isinstance(value, dict):
        return {key: _detached(item) for key, item in value.items()}
    return type(value)(map(_detached, value)) if type(value) in (list, tuple) else value
