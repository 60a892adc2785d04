"""Warns when a loss is not finite: MMEngine trains on to the end, and good files make room for bad ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from etude.dialects.mmengine.live.hooks.checkpoint_hook import CheckpointHook
from etude.dialects.openmm.live.divergence import lost_name, way_back


def describe(runner: Any, row: Mapping[str, Any]) -> str | None:
    """The warning for a log line with these values; None while its losses are finite.

    The values were read for the line, and so was the history that tells where it began.
    """
    name = lost_name(row)
    if name is None:
        return None
    began = _beginning(runner, name)
    return (
        f"{name} is {row[name]}, for the first time at iteration {began}. MMEngine trains on all the same and saves "
        f"what comes of it. {_way_back(runner, began)}"
    )


def _beginning(runner: Any, name: str) -> int:
    """The iteration of the first value that is not finite, from 1; the current one where the history is not kept."""
    now = int(runner.iter) + 1
    history = runner.message_hub.log_scalars.get(name if name.startswith("train/") else f"train/{name}")
    if history is None or np.isfinite(history.data[0]).all():
        return now
    first = int(np.argmin(np.isfinite(history.data[0])))
    return max(1, now - (len(history) - 1 - first))


def _way_back(runner: Any, began: int) -> str:
    hook = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
    lengths, most = {"iter_{}.pth": 1}, 0 if hook is None else hook.max_keep_ckpts
    if hook is not None and "{}" in getattr(hook, "filename_tmpl", ""):
        lengths[hook.filename_tmpl] = len(runner.train_dataloader) if hook.by_epoch else 1
    folders = [runner.work_dir, getattr(hook, "out_dir", None) or runner.work_dir]
    return way_back(folders, lengths, began=began, most=most, flag="--resume")
