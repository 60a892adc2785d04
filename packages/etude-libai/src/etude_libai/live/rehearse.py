"""Runs LiBai's and detectron2's trainers without computing anything, for ``etude plan``."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from etude.core.hook import HookTable
from etude.core.run import Run
from etude.dialects.rehearsal import EVALUATION, LOG_LINE, SAVE, Record
from etude_libai.files import PeriodicCheckpointer
from etude_libai.live.detectron.hooks.hooks import PreciseBN
from etude_libai.live.events.writers import EventWriter
from etude_libai.live.hooks import hooks, hooks_save
from etude_libai.live.trainer import FaceHook, HookBase, TrainerBase

_POINTS = ("before_train", "before_step", "after_step", "after_train")


def rehearse(run: Run, record: Record) -> None:
    """Run the iterations without steps and record what would happen.

    The scheduler really steps. Hooks that save, evaluate and write decide by their own rules, but only the decision is
    recorded. User-defined hooks are not called: the points where they would act are recorded.
    """
    trainer: TrainerBase = run.runner
    trainer._hooks = [_recorded_hook(hook, record) for hook in trainer._hooks]
    trainer.run_step = record.update  # type: ignore[method-assign]
    for name in ("_data_loader_iter", "_data_loader_iter_obj"):
        vars(getattr(trainer, "_trainer", trainer)).pop(name, None)
    run.hooks = HookTable([FaceHook(trainer)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no optimizer has stepped before its scheduler
        TrainerBase.train(trainer, run.step, run.total_steps or 0)


def _recorded_hook(hook: Any, record: Record) -> HookBase:
    """Replace the work of a hook, and wrap it in one that records its calls."""
    really = type(hook).__module__.startswith("etude_libai.")
    if isinstance(hook, PeriodicCheckpointer):
        hook.checkpointer = _Saves(hook.checkpointer, record)
    elif isinstance(hook, hooks.EvalHook):
        hook._func = lambda: record.did(EVALUATION)
    elif isinstance(hook, hooks_save.BestCheckpointer):
        best = f"{hook._file_prefix}{getattr(hook._checkpointer, 'suffix', '')}"
        hook._best_checking = lambda: record.did("best, maybe")  # type: ignore[method-assign]
        record.perhaps.append(best)
        record.note(f"{hook._file_prefix} is saved when {hook._val_metric} is the best so far: that depends on results")
    elif isinstance(hook, hooks.PeriodicWriter):
        hook._writers = [_Lines(record)]
    elif isinstance(hook, PreciseBN):
        hook.update_stats = lambda: record.did("precise BN")  # type: ignore[method-assign]
    elif isinstance(hook, hooks.EarlyStop):
        really = False
        record.note(f"EarlyStop may end the run before: that depends on {hook.val_metric}")
    elif not isinstance(hook, hooks.LRScheduler):
        really = False
    made = Rehearsed(hook, record, really=really)
    if not really and isinstance(hook, hooks.LRScheduler):
        record.note(f"{type(hook).__name__} is a scheduler of your own: the values that it sets are not predicted")
    return made


class Rehearsed(HookBase):
    """Records the calls of a hook and, with ``really``, passes them on."""

    def __init__(self, hook: Any, record: Record, *, really: bool) -> None:
        self._hook, self._record, self._really = hook, record, really
        for point in [point for point in _POINTS if _overrides(hook, point)]:
            setattr(self, point, partial(self._called, point))

    def _called(self, point: str) -> None:
        self._record.act(point, type(self._hook).__name__)
        if self._really:
            getattr(self._hook, point)()


def _overrides(hook: Any, point: str) -> bool:
    own = getattr(type(hook), point, None)
    return own is not None and own.__qualname__ != f"HookBase.{point}"


class _Saves:
    """Replaces a checkpointer: records the names that it would write, and those that it would remove."""

    def __init__(self, checkpointer: Any, record: Record) -> None:
        self._ending = getattr(checkpointer, "suffix", "")
        self._record, self._last = record, ""

    def save(self, name: str, **kwargs: Any) -> None:
        self._last = f"{name}{self._ending}"
        self._record.did(SAVE, self._last)

    def get_checkpoint_file(self) -> str:
        return self._last

    def forget(self, path: str) -> None:
        self._record.prune(path)


class _Lines(EventWriter):
    """Replaces all writers. After the last iteration there is another line only if there was an evaluation."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def write(self) -> None:
        done, record = self._record.run.done, self._record
        lines, evaluated = record.done.get(LOG_LINE, ()), record.done.get(EVALUATION, ())
        if done not in lines or done in evaluated:
            record.did(LOG_LINE)
