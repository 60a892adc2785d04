"""Runs MMEngine's loops without computing anything, for ``etude plan``."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from etude.core.hook import HookTable
from etude.core.run import Run
from etude.dialects.rehearsal import EVALUATION, LOG_LINE, SAVE, Blank, Noted, Record
from etude.errors.own_code import is_own
from etude_openmm.mmengine.live.hooks.checkpoint_hook import CheckpointHook
from etude_openmm.mmengine.live.hooks.early_stopping_hook import EarlyStoppingHook
from etude_openmm.mmengine.live.hooks.hook import Hook, acts_at
from etude_openmm.mmengine.live.hooks.logger_hook import LoggerHook
from etude_openmm.mmengine.live.hooks.upkeep_hooks import ParamSchedulerHook, _schedulers, length_of
from etude_openmm.mmengine.live.runner.hooking import CALLS, Acting
from etude_openmm.shared.priority import get_priority

#: MMEngine's callback points → Étude's.
POINTS = {
    "before_train_epoch": "before_epoch", "before_train_iter": "before_step", "after_train_iter": "after_step",
    "after_train_epoch": "after_epoch", "before_val": "before_eval", "before_val_epoch": "before_eval",
    "before_val_iter": "before_eval_step", "after_val_iter": "after_eval_step", "after_val_epoch": "after_eval",
    "after_val": "after_eval", "before_save_checkpoint": "before_save", "after_load_checkpoint": "after_load",
}  # fmt: skip
_ROUND_VALIDATION = ("before_val", "before_val_epoch"), ("after_val_epoch", "after_val")
_ROUND_BATCH = ("before_val_iter", "after_val_iter")

#: A hook's method by the name of its point.
Acts = Mapping[str, Callable[..., Any]]


def prepare(run: Run) -> None:
    """Build what ``train()`` would build first, so that lengths and groups are known."""
    runner: Any = run.runner
    if run.optimizers or runner._train_loop is None:
        return
    runner._build_for_training()
    run.steps_per_epoch = length_of(runner.train_dataloader)
    run.hooks = HookTable([_shown(hook, runner) for hook in runner.hooks])


def rehearse(run: Run, record: Record) -> None:
    """Run the train loop on blank batches and record what would happen.

    Schedulers really step. Hooks that save and log decide by their own rules, but only the decision is recorded;
    so are validations. User-defined hooks are not called: the points where they would act are recorded.
    """
    runner: Any = run.runner
    if runner._train_loop is None:
        record.note("the config has no train_cfg: nothing is trained")
        return
    _Stage(runner, record).set_up()
    _note_what_depends(runner, record)
    runner.call_hook("before_run")
    runner.train_loop.run()
    runner.call_hook("after_run")


def _shown(hook: Hook, runner: Any) -> Acting:
    """Return a hook for the table, with the priority that it was given."""
    return Acting(hook, runner, get_priority(hook.priority))


class _Stage:
    """Replaces parts of a runner by ones that only record what they would do."""

    def __init__(self, runner: Any, record: Record) -> None:
        self.runner, self.record, self.run = runner, record, runner.engine
        self.hooks: list[tuple[Hook, Acts]] = [(hook, _acts(hook, runner, record)) for hook in runner.hooks]
        self.quiet = _Quiet(runner, record)

    def set_up(self) -> None:
        runner, loop = self.runner, self.runner.train_loop
        blank = Blank(loop.dataloader)
        loop.dataloader = blank
        if hasattr(loop, "passes"):
            loop.passes.begin = lambda number, skip=0, restart=None: iter(blank)
        if hasattr(loop, "dataloader_iterator"):
            loop.dataloader_iterator = itertools.repeat(blank._batch)
        self.run.model.train_step = self._train_step
        runner.call_hook = self._call_hook
        if runner.val_loop is not None:
            runner.val_loop.run = self._validate
        self.run.hooks = HookTable([self._noted(hook, acts) for hook, acts in self.hooks])

    def _noted(self, hook: Hook, acts: Acts) -> Noted:
        instead = {POINTS[name]: CALLS[name](act, self.quiet) for name, act in acts.items()}
        return Noted(_shown(hook, self.runner), self.record, instead=instead)

    def _call_hook(self, fn_name: str, **kwargs: Any) -> None:
        for hook, acts in self.hooks:
            if acts_at(hook, fn_name):
                self.record.act(POINTS.get(fn_name, fn_name), type(hook).__name__)
                if fn_name in acts:
                    acts[fn_name](self.quiet, **kwargs)

    def _train_step(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Replace the model's ``train_step``. The counter is the runner's: a user-defined loop may count by itself."""
        self.run.step = int(self.runner.iter)
        self.record.update()
        self.run.stage = "after_step"
        return {}

    def _validate(self) -> dict[str, float]:
        before, after = _ROUND_VALIDATION
        for point in before:
            self._call_hook(point)
        self.record.did(EVALUATION)
        acting = [(point, hook) for point in _ROUND_BATCH for hook, _ in self.hooks if acts_at(hook, point)]
        for point, hook in acting:
            self.record.calls[POINTS[point], type(hook).__name__] += length_of(self.runner.val_loop.dataloader) or 0
        for point in after:
            self._call_hook(point)
        return {}


def _acts(hook: Hook, runner: Any, record: Record) -> Acts:
    """Return the methods of a hook that are really called.

    These are schedules, and the rules of saving and logging, with the saving itself replaced by a record.
    """
    if type(hook) is ParamSchedulerHook:
        return {name: getattr(hook, name) for name in CALLS if acts_at(hook, name)}
    if type(hook) is LoggerHook:
        return {"after_train_iter": hook.after_train_iter}
    if type(hook) is not CheckpointHook:
        return {}
    hook._settle_folder(runner)
    if hook.max_keep_ckpts > 0:
        hook.keep_ckpt_ids = deque(maxlen=hook.max_keep_ckpts)

    def save(runner: Any, step: int, meta: dict[str, Any]) -> None:
        obsolete = hook._note_kept(runner, step) if hook.max_keep_ckpts > 0 else None
        record.did(SAVE, hook.filename_tmpl.format(step))
        if obsolete is not None:
            record.prune(hook.filename_tmpl.format(obsolete))

    hook._save_checkpoint_with_step = save  # type: ignore[method-assign]
    return {"after_train_iter": hook.after_train_iter, "after_train_epoch": hook.after_train_epoch}


def _note_what_depends(runner: Any, record: Record) -> None:
    for hook in runner.hooks:
        own = is_own(type(hook).__module__)
        if isinstance(hook, CheckpointHook) and hook.save_best is not None:
            asked = ", ".join(hook.key_indicators)
            names = "of the first result of a validation" if asked == "auto" else asked
            record.note(f"a new best {names} is saved too, and the newest file again: that depends on results")
        if isinstance(hook, CheckpointHook) and hook.published_keys is not None:
            record.note(f"copies with only {', '.join(hook.published_keys)} are published at the end")
        if isinstance(hook, EarlyStoppingHook):
            record.note(f"EarlyStoppingHook may end the run before: that depends on {hook.monitor}")
        if isinstance(hook, ParamSchedulerHook | CheckpointHook | LoggerHook) and not own:
            record.note(f"{type(hook).__name__} is a hook of your own: what it would do is not predicted")
    for scheduler in _schedulers(runner):
        if getattr(scheduler, "need_val_args", False):
            record.note(
                f"{scheduler.param_name} follows the results ({type(scheduler).__name__}): shown as if it never fell"
            )
    if runner._resume:
        record.note("the run would be resumed; it is shown from the beginning")


class _Quiet:
    """A runner that writes nothing: it records that a log line was due."""

    def __init__(self, runner: Any, record: Record) -> None:
        self._runner, self._record = runner, record
        self.logger = self.visualizer = self.log_processor = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def info(self, *args: Any, **kwargs: Any) -> None:
        """Discard a line of text."""

    add_scalars = warning = info

    def get_log_after_iter(self, *args: Any) -> tuple[dict[str, Any], str]:
        self._record.did(LOG_LINE)
        return {}, ""
