"""What is said when a loss is not finite: MMEngine trains on to the end, and good files make room for bad ones."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from etude.dialects.mmengine.live.hooks.checkpoint_hook import CheckpointHook


def describe(runner: Any, row: Mapping[str, Any]) -> str | None:
    """The warning for a log line with these values; None while its losses are finite.

    The values were read for the line, and so was the history that tells where it began.
    """
    name = next((name for name, value in row.items() if "loss" in name and _is_lost(value)), None)
    if name is None:
        return None
    began = _beginning(runner, name)
    return (
        f"{name} is {row[name]}, for the first time at iteration {began}. MMEngine trains on all the same and saves "
        f"what comes of it. {_way_back(runner, began)}"
    )


def _is_lost(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


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
    older = [(done, path) for done, path in _saved(runner, hook) if done < began]
    if not older:
        return "There is no checkpoint from before. Ctrl-C stops the run"
    done, path = max(older)
    pruned = hook is not None and hook.max_keep_ckpts > 0
    kept = f", which max_keep_ckpts={hook.max_keep_ckpts} will remove" if hook is not None and pruned else ""
    return (
        f"The newest checkpoint from before is {path} (iteration {done}){kept}: stop the run with Ctrl-C, "
        f"and go on from there with --resume {path}"
    )


def _saved(runner: Any, hook: CheckpointHook | None) -> Iterator[tuple[int, str]]:
    """The periodic files that are there, by the iterations that were done when they were saved."""
    lengths = {"iter_{}.pth": 1}
    if hook is not None and "{}" in getattr(hook, "filename_tmpl", ""):
        lengths[hook.filename_tmpl] = len(runner.train_dataloader) if hook.by_epoch else 1
    for folder in {runner.work_dir, getattr(hook, "out_dir", None) or runner.work_dir}:
        for template, length in lengths.items():
            pattern = re.compile(re.escape(template).replace(r"\{\}", r"(\d+)"))
            for file in os.listdir(folder) if os.path.isdir(folder) else ():
                if match := pattern.fullmatch(file):
                    yield int(match[1]) * length, os.path.join(folder, file)
