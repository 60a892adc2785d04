"""Explains why a model's step failed, where the batch and the served heads know more than the exception.

All of this happens only once something has been raised: a step pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from etude.errors import EtudeError, UserCodeError, printable

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


def explain_step_error(error: Exception, runner: BaseRunner, batch: Any) -> None:
    """Let the command line say what the labels of ``batch`` have to do with ``error``, which a head of ours raised."""
    if isinstance(error, EtudeError) or hasattr(error, "etude_reported"):
        return
    if not hasattr(error, "etude_labels"):
        return
    labels, known = error.etude_labels
    said = _missing(batch, runner) or _beyond(labels, known, runner)
    if said:
        reported = UserCodeError(f"model {runner.model_name}, step {runner.iter + 1}: {said}")
        error.etude_reported = reported  # type: ignore[attr-defined]


def _missing(batch: Any, runner: BaseRunner) -> str:
    if not isinstance(batch, Mapping) or "gt_label" in batch:
        return ""
    keys = printable(", ".join(map(str, batch)))
    at = _place(runner, "data", "train", "pipeline")
    return f"the batch has no gt_label, it holds {keys}; the last transforms of data.train.pipeline{at} must collect it"


def _beyond(labels: Any, known: int | None, runner: BaseRunner) -> str:
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or labels.ndim != 1 or known is None:
        return ""
    if int(labels.max()) < known and int(labels.min()) >= 0:
        return ""
    at = _place(runner, "model", "head", "num_classes")
    return f"labels of the batch go from {int(labels.min())} to {int(labels.max())}, and num_classes is {known}{at}"


def _place(runner: BaseRunner, *path: str) -> str:
    place = getattr(runner.engine.plan, "places", {}).get(path)
    return f" ({place})" if place is not None else ""
