"""Runs McQuic's trainer without computing anything, for ``etude plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from etude.core.loop import epochs, fit
from etude.core.run import Run
from etude.dialects.rehearsal import EVALUATION, LOG_LINE, SAVE, Blank, Record
from etude_mcquic.live.hooks import ChainHook, EpochFrequencyHook
from etude_mcquic.live.trainer import _POINTS, SCALARS_EVERY, Bridge, Trainer

#: The trainer's own functions in the chains of hooks.
OWN = ("validate", "log", "_stepFinishHook")


def rehearse(run: Run, record: Record) -> None:
    """Run all epochs without steps and record what would happen.

    The scheduler really steps. Validations, images and saves are recorded when McQuic's rules call them.
    """
    trainer: Trainer = run.runner
    bridge = next(hook for hook in run.hooks if isinstance(hook, Bridge))
    chains = {f"{name[0].lower()}{name[1:]}Hook": _recording_chain(record, point, bridge.chains[name])
              for name, point in _POINTS.items()}  # fmt: skip
    trainer.transform = lambda images: images
    _note_own_work(trainer, record)
    trainer.prepare(Blank(trainer._kwds["trainLoader"]), None, **chains)
    run.update, run.loop = _update(record), epochs
    if isinstance(trainer._scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        trainer._scheduler.step = lambda *_: None  # type: ignore[method-assign]
        record.note("the learning rate follows the results (ReduceLROnPlateau): shown as if it never fell")
    fit(run)
    trainer.saver.close()


def _note_own_work(trainer: Trainer, record: Record) -> None:
    def validate(epoch: int, *args: Any, **kwds: Any) -> None:
        record.act("before_epoch", "validate")
        record.did(EVALUATION)
        trainer.save()
        record.note("best.ckpt is written when a validation was the best so far")

    def step_finish(step: int, *args: Any, **kwds: Any) -> None:
        if step % SCALARS_EVERY == 0:
            record.act("after_step", "scalars")
            record.did("scalars")

    def log(*args: Any, **kwds: Any) -> None:
        record.act("after_epoch", "log")
        record.did(LOG_LINE)

    def save(path: str | Path | None = None) -> None:
        record.did(SAVE, Path(path or trainer.saver.SavePath).name)

    own = {"validate": validate, "_stepFinishHook": step_finish, "log": log, "save": save}
    for name, function in own.items():
        setattr(trainer, name, function)


def _recording_chain(record: Record, point: str, chain: ChainHook) -> ChainHook:
    """Return a chain of the user's hooks in which each call is only recorded."""
    others = [hook for hook in chain.hooks if not isinstance(hook, EpochFrequencyHook)]
    users = [hook for hook in others if _function_name(hook) not in OWN]
    return ChainHook(*[_recorder(record, point, _hook_name(hook)) for hook in users])


def _recorder(record: Record, point: str, who: str) -> Any:
    return lambda *args, **kwds: record.act(point, who)


def _function_name(hook: Any) -> str:
    return getattr(hook, "__name__", "")


def _hook_name(hook: Any) -> str:
    """Return the class name of a hook object, or the name of a function."""
    owner = getattr(hook, "__self__", None)
    return type(owner).__name__ if owner is not None else _function_name(hook) or type(hook).__name__


def _update(record: Record) -> Any:
    def update(run: Run, batch: Any) -> dict[str, Any]:
        record.update()
        return {"rate": None, "distortion": None}

    return update
