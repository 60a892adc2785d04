"""Names the points of a run that hooks act at, and finds misspelt ones. Imports no torch, so that checks can use it."""

from __future__ import annotations

from collections.abc import Iterable

from etude.errors.spelling import nearest

STEP_POINTS = ("before_step", "after_forward", "before_update", "after_step")
EPOCH_POINTS = ("before_epoch", "after_epoch")
#: In the order of a run, except that an evaluation may come after a step, too.
POINTS = (
    "before_run", "before_train", "before_epoch", *STEP_POINTS, "after_epoch",
    "before_eval", "before_eval_step", "after_eval_step", "after_eval",
    "before_save", "after_load", "after_train", "after_run", "on_error",
)  # fmt: skip

#: What Lightning, Hugging Face's Trainer and MMEngine call the points.
FOREIGN_POINTS = {
    "on_fit_start": "before_run", "on_fit_end": "after_run", "on_init_end": "before_run",
    "on_train_start": "before_train", "on_train_begin": "before_train", "on_train_end": "after_train",
    "on_train_epoch_start": "before_epoch", "on_epoch_begin": "before_epoch", "before_train_epoch": "before_epoch",
    "on_train_epoch_end": "after_epoch", "on_epoch_end": "after_epoch", "after_train_epoch": "after_epoch",
    "on_train_batch_start": "before_step", "on_step_begin": "before_step", "before_train_iter": "before_step",
    "on_train_batch_end": "after_step", "on_step_end": "after_step", "after_train_iter": "after_step",
    "on_before_backward": "after_forward", "on_after_backward": "before_update",
    "on_before_optimizer_step": "before_update", "on_pre_optimizer_step": "before_update",
    "on_optimizer_step": "after_step", "on_validation_start": "before_eval", "on_validation_epoch_start": "before_eval",
    "on_validation_batch_start": "before_eval_step", "on_validation_batch_end": "after_eval_step",
    "on_validation_epoch_end": "after_eval", "on_validation_end": "after_eval", "on_evaluate": "after_eval",
    "before_val_epoch": "before_eval", "after_val_epoch": "after_eval", "before_val": "before_eval",
    "after_val": "after_eval", "on_save_checkpoint": "before_save", "on_save": "before_save",
    "on_load_checkpoint": "after_load", "on_exception": "on_error",
}  # fmt: skip


def meant_points(methods: Iterable[str]) -> dict[str, str]:
    """Map names of methods that look like a point but are none to the point that was probably meant.

    >>> meant_points(["after_stepp", "on_train_end", "after_step", "reset"])
    {'after_stepp': 'after_step', 'on_train_end': 'after_train'}
    """
    starts = ("before_", "after_", "on_")
    unknown = [name for name in methods if name.startswith(starts) and name not in POINTS]
    return {name: near for name in unknown if (near := FOREIGN_POINTS.get(name) or nearest(name, POINTS)) is not None}
