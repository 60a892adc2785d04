"""Runs an mmcv runner through its workflow without computing anything, for ``etude plan``."""

from __future__ import annotations

import inspect
import os
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from etude.core.hook import with_subject
from etude.core.run import Run
from etude.dialects.rehearsal import EVALUATION, LOG_LINE, SAVE, Blank, Noted, Record
from etude.errors.own_code import is_own
from etude.hooks.signals import Stops
from etude_openmm.mmcv1.live.hooks.checkpoint_hook import CheckpointHook
from etude_openmm.mmcv1.live.hooks.evaluation import EvalHook
from etude_openmm.mmcv1.live.hooks.hook import GENERIC, Hook
from etude_openmm.mmcv1.live.hooks.lr_updater import LrUpdaterHook
from etude_openmm.mmcv1.live.hooks.momentum_updater import MomentumUpdaterHook
from etude_openmm.mmcv1.live.hooks.optimizer_hook import GradientCumulativeOptimizerHook
from etude_openmm.mmcv1.live.hooks.small_hooks import IterTimerHook
from etude_openmm.mmcv1.live.logger.base import LoggerHook
from etude_openmm.mmcv1.live.logger.text import TextLoggerHook
from etude_openmm.mmcv1.live.logger.trackers import NeptuneLoggerHook
from etude_openmm.mmcv1.live.runner.adapter import POINT, Adapted

VAL_LINE, VALIDATION, UPDATE = "log line, val", "validation", "update"

#: Stage of a hook → the function to call there with the runner.
Acts = dict[str, Callable[[Any], Any]]
_SCHEDULES = (LrUpdaterHook, MomentumUpdaterHook)
_UNDERSTOOD = (*_SCHEDULES, CheckpointHook, EvalHook, LoggerHook, IterTimerHook, GradientCumulativeOptimizerHook)


def rehearse(run: Run, record: Record) -> None:
    """Run the workflow on blank batches and record what would happen.

    Policies really act. Hooks that evaluate, save and log decide by their own rules, but only the decision is
    recorded. All other hooks are not called: the stages where they would act are recorded.
    """
    runner, training = run.runner, run.train_fn
    wired = training.wired
    for stops in [hook for hook in run.hooks if isinstance(hook, Stops)]:
        run.hooks.remove(stops)
    _note_unpredicted(runner, record)
    with tempfile.TemporaryDirectory(prefix="etude-plan-") as folder:
        _Stage(runner, record, folder).set_up(run.total_steps)
        wired.loaders = [Blank(loader) for loader in wired.loaders]
        run.steps_per_epoch = run.total_steps = None  # from here on the runner counts
        try:
            wired.run()
        finally:
            training.log.close()


class _Stage:
    """Replaces parts of a runner by ones that only record what they would do."""

    def __init__(self, runner: Any, record: Record, folder: str) -> None:
        self.runner, self.record, self.folder = runner, record, folder
        runner.work_dir = folder
        self.acts = {hook: self._acts(hook) for hook in runner.hooks}

    def set_up(self, total: int | None) -> None:
        runner, self.total = self.runner, total
        runner.run_iter, runner.val = self._run_iter, partial(self._val, runner.val)
        runner.call_hook, runner._engine_hooks = self._call_hook, self._engine_hooks
        runner._write_checkpoint, runner._finish_stage = self._write, lambda *_: None
        if not _is_ours(type(runner).save_checkpoint):
            runner.save_checkpoint = self._save

    def _acts(self, hook: Hook) -> Acts:
        """Return the methods of a hook that are really called.

        These are schedules, and the rules of evaluating, saving and logging, with the work itself replaced by a record.
        """
        if isinstance(hook, _SCHEDULES):
            return {stage: hook.method_for(stage) for stage in Hook.stages if hook.acts_at(stage)}
        if not isinstance(hook, _UNDERSTOOD):
            return {}
        stages = {stage for stage in Hook.stages if hook.acts_at(stage) and _is_ours(hook.method_for(stage))}
        if isinstance(hook, GradientCumulativeOptimizerHook):
            return {"after_train_iter": partial(self._update, hook)} if "after_train_iter" in stages else {}
        acts = {stage: hook.method_for(stage) for stage in stages}
        if isinstance(hook, CheckpointHook):
            hook.out_dir = None
            for stage in stages & {"after_train_epoch", "after_train_iter"}:
                acts[stage] = partial(self._save_and_prune, acts[stage], hook)
        elif isinstance(hook, EvalHook):
            vars(hook).update(out_dir=None, _evaluate_and_go_on=partial(self._evaluate, hook))
        elif isinstance(hook, LoggerHook):
            vars(hook).update(log=partial(self._log, hook))
            acts.pop("after_run", None)
            if isinstance(hook, NeptuneLoggerHook):  # as in mmcv, it leaves this out
                acts.pop("before_run", None)
            else:
                acts["before_run"] = partial(LoggerHook.before_run, hook)
        return acts

    def _engine_hooks(self) -> list[Noted]:
        return [
            Noted(
                Adapted(hook, self.runner),
                self.record,
                instead={
                    POINT[stage]: with_subject(act, self.runner) for stage, act in self.acts.get(hook, {}).items()
                },
            )
            for hook in self.runner.hooks
        ]

    def _call_hook(self, name: str) -> None:
        """Call a stage or a generic method of every hook, for runners that call ``call_hook`` themselves."""
        run = self.record.run
        run.stage = "after_step" if name == "after_train_iter" else ""
        for hook in list(self.runner.hooks):
            if not _acts_at(hook, name):
                continue
            self.record.act(POINT.get(name, name), type(hook).__name__)
            if name in POINT:
                act = self.acts.get(hook, {}).get(name)
            else:
                act = getattr(hook, name) if isinstance(hook, _UNDERSTOOD) and _is_ours(getattr(hook, name)) else None
            if act is not None:
                act(self.runner)

    def _run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        """Replace the model's step."""
        run, self.runner.outputs = self.record.run, {}
        if train_mode:
            run.total_steps = self.total
            self.record.update()
            run.total_steps = None

    def _val(self, val: Callable[..., None], data_loader: Any, **kwargs: Any) -> None:
        self.record.did(VALIDATION)
        val(data_loader, **kwargs)

    def _evaluate(self, hook: EvalHook, runner: Any) -> None:
        self.record.did(EVALUATION)
        runner.log_buffer.output["eval_iter_num"] = len(hook.dataloader)
        runner.log_buffer.ready = True

    def _log(self, hook: LoggerHook, runner: Any) -> None:
        if not isinstance(hook, TextLoggerHook):
            self.record.did(type(hook).__name__)
            return
        self.record.did(LOG_LINE if hook.get_mode(runner) == "train" else VAL_LINE)
        runner.log_buffer.output.pop("eval_iter_num", None)

    def _update(self, hook: GradientCumulativeOptimizerHook, runner: Any) -> None:
        if hook._is_due(runner):
            self.record.did(UPDATE)

    def _save_and_prune(self, act: Callable[[Any], Any], hook: CheckpointHook, runner: Any) -> None:
        """Let the hook save and prune empty files, by its own rules, in a temporary folder."""
        before = set(os.listdir(self.folder)) if hook.max_keep_ckpts > 0 else set()
        act(runner)
        for name in before - set(os.listdir(self.folder)) if before else ():
            self.record.prune(name)

    def _write(self, out_dir: str, filename: str, *args: Any) -> None:
        if out_dir == self.folder:
            Path(out_dir, filename).touch()
        self.record.did(SAVE, filename)

    def _save(self, out_dir: str, filename_tmpl: str = "", *args: Any, **kwargs: Any) -> None:
        """Replace a user-defined ``save_checkpoint``, which may have its own default name for files."""
        runner = self.runner
        unit, number = ("iter", runner.iter) if runner.unit == "iters" else ("epoch", runner.epoch)
        own = inspect.signature(type(runner).save_checkpoint).parameters.get("filename_tmpl")
        default = own.default if own is not None and isinstance(own.default, str) else f"{unit}_{{}}.pth"
        self._write(out_dir, (filename_tmpl or default).format(number + 1))


def _acts_at(hook: Hook, name: str) -> bool:
    if name in POINT:
        return hook.acts_at(name)
    return name in vars(hook) or getattr(type(hook), name) is not getattr(Hook, name)


def _is_ours(method: Any) -> bool:
    return is_own(getattr(method, "__module__", ""))


def _note_unpredicted(runner: Any, record: Record) -> None:
    for hook in runner.hooks:
        if isinstance(hook, EvalHook) and hook.save_best is not None:
            what = "first result" if hook.save_best == "auto" else hook.save_best
            record.note(f"best_… is saved when the {what} is the best so far: that depends on results")
    yours = dict.fromkeys(type(hook).__name__ for hook in runner.hooks if _only_noted(hook))
    if yours:
        record.note(f"hooks of your own are noted where they act, what they do is not predicted: {', '.join(yours)}")
    if runner.iter:
        record.note(f"the run is resumed: it continues after epoch {runner.epoch}, iteration {runner.iter}")


def _only_noted(hook: Hook) -> bool:
    """Return whether some stage of the hook is user code, and the hook is no policy."""
    return not isinstance(hook, _SCHEDULES) and not all(map(_is_ours, _stage_methods(hook)))


def _stage_methods(hook: Hook) -> Iterable[Any]:
    names = (*Hook.stages, *GENERIC.values())
    return (getattr(hook, name) for name in names if _acts_at(hook, name))
