"""Finds the checkpoint that a run resumes from: the newest whole one, or the one that was named."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from etude.checkpoint.attempts import NAME as ATTEMPTS
from etude.checkpoint.formats.folders import damage
from etude.errors import ResumeError, SaveError, printable
from etude_libai.files import (
    LAST,
    PeriodicCheckpointer,
    iteration_of,
    last_name,
    newest_whole,
    read_item,
    save_file,
)
from etude_libai.lazy.load import try_get_key
from etude_libai.live import topology
from etude_libai.live.resume.state import own_part

logger = logging.getLogger("libai.engine.default")

FINAL = "model_final"
RECORDS = "metrics.json"
#: A key in Étude's entry of the last checkpoint: the run is finished.
ENDED = "ended"
#: In graph mode the optimizer's state belongs to the graph.
NEED = ("model", "lr_scheduler", "optimizer|graph")


@dataclass(frozen=True)
class Resume:
    """A checkpoint to resume from: its path, the next iteration, and Étude's entry in it (empty in LiBai's files)."""

    path: str
    start: int
    state: Mapping[str, Any] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Return the position of this process in its data; empty if the checkpoint does not have it."""
        own = own_part(self.state) or {}
        return dict(own.get("data") or {})


def find(cfg: Any, named: str = "", *, longer: bool = False) -> Resume | None:
    """Return the checkpoint to resume from; None if the run starts at iteration 0.

    With ``longer`` a finished run can be resumed, too.
    """
    if named:
        if wrong := damage(named, NEED):
            raise ResumeError(f"{printable(named)}: {wrong}")
        return _at(named)
    if not try_get_key(cfg, "train.resume", default=False):
        return None
    folder = cfg.train.output_dir
    if not os.path.exists(os.path.join(folder, LAST)):
        logger.warning(f"there is no checkpoint in {folder} yet, starting at iteration 0")
        _set_records_aside(folder)
        return None
    return _at(newest_whole(_last(folder, longer=longer), logger, NEED))


def _last(folder: str, *, longer: bool) -> str:
    """Return the path that ``last_checkpoint`` names. Raises an error if the run is finished."""
    text = last_name(folder)
    path = os.path.join(folder, text)
    if text == FINAL:
        finished = not damage(path, NEED) and not _has_something_left(path)
        known = longer and os.path.isfile(os.path.join(path, "trainer"))
        assert known or not finished, "model training has finished, check your model in train.output_dir"
    elif re.search(r"(\d+)$", text) is None:
        raise ValueError(f"{folder}/{LAST} names {text!r}, which says no iteration")
    return path


def has_ended(folder: str) -> bool:
    """Return whether the run of a folder is finished. The command line notes there which attempts were not."""
    name = last_name(folder)
    # detectron2's checkpoint is a file.
    if name.removesuffix(".pth") != FINAL or os.path.exists(os.path.join(folder, ATTEMPTS)):
        return False
    return not _has_something_left(os.path.join(folder, name))


def say_ended(folder: str, iterations: int, key: str) -> None:
    """Print that the run has ended and what continues it."""
    if topology.is_main_process():
        print(f"{printable(folder)}: training has finished after {iterations} iterations; a larger {key} goes on")


def _at(path: str) -> Resume:
    state = _own_entry(path)
    if not state:
        logger.warning(
            f"{path} was not written by Étude: random generators start again from the seed, and the position in the "
            "data is computed from the iteration"
        )
    return Resume(path, int(state.get("iter", iteration_of(path))) + 1, state)


def _has_something_left(path: str) -> bool:
    """Return whether the run was killed after its last checkpoint, but before its last evaluation and log line."""
    state = _own_entry(path)
    return bool(state) and not state.get(ENDED)


def _own_entry(path: str) -> dict[str, Any]:
    """Return Étude's entry of a checkpoint; empty in one that LiBai wrote."""
    entry = os.path.join(path, "trainer")
    return dict(read_item(entry)) if os.path.isfile(entry) else {}


def mark_ended(trainer: Any) -> None:
    """Mark the last checkpoint as that of a finished run: its evaluation and log line are done, too."""
    path = os.path.join(trainer.cfg.train.output_dir, FINAL)
    done = trainer.iter >= trainer.max_iter and trainer.engine.stopping is None and topology.is_main_process()
    with suppress(OSError, SaveError, ResumeError):  # the run has ended well all the same
        state = _own_entry(path) if done else {}
        if state and state["iter"] == trainer.max_iter - 1:
            save_file(os.path.join(path, "trainer"), {**state, ENDED: True})


def _set_records_aside(folder: str) -> None:
    """Rename the metrics of a run that left no checkpoint, so that this run starts with an empty file."""
    path = os.path.join(folder, RECORDS)
    if topology.is_main_process() and os.path.exists(path) and os.path.getsize(path):
        os.replace(path, f"{path}.{time.strftime('%Y%m%d-%H%M%S')}")


def keep_state(trainer: Any) -> None:
    """Save the last finished iteration after a signal, a time limit or ``trainer.stop``, and log how to resume.

    If there is nothing to save, or no checkpointer, only the reason is logged.
    """
    run = trainer.engine
    if run.stopping is None or run.step >= trainer.max_iter:
        return
    said = logging.getLogger(trainer.logger_name)
    checkpointer = checkpointer_of(trainer)
    if checkpointer is None or run.step <= trainer.start_iter:
        said.info(f"{run.stopping}: the end after {run.step} of {trainer.max_iter} iterations")
        return
    # The checkpoint belongs to the last finished iteration, and ``iter`` has moved on.
    after, trainer.iter = trainer.iter, run.step - 1
    try:
        checkpointer.save(f"model_{trainer.iter:07d}", iteration=trainer.iter)
    finally:
        trainer.iter = after
    said.info(f"{run.stopping}, saved; --resume goes on with iteration {run.step}")


def checkpointer_of(trainer: Any) -> Any:
    """Return the checkpointer of the trainer or of its hook; None if this process writes no checkpoints."""
    saving = (hook.checkpointer for hook in trainer._hooks if isinstance(hook, PeriodicCheckpointer))
    found = getattr(trainer, "checkpointer", None) or next(saving, None)
    return found if getattr(found, "save_dir", "") else None
