"""Warns when a loss is not finite: LiBai trains on to the end, and good checkpoints make room for bad ones."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from etude.checkpoint.formats import folders
from etude.dialects.libai.files import PeriodicCheckpointer
from etude.dialects.libai.live.events.storage import get_event_storage, has_event_storage


def describe(trainer: Any) -> str | None:
    """The warning when the newest losses are not finite; None while they are. They were read for the line before."""
    histories = get_event_storage().histories() if has_event_storage() else {}
    for name, history in histories.items():
        if "loss" in name and not math.isfinite(history.latest()):
            lost = list(takewhile(lambda one: not math.isfinite(one[0]), reversed(history.values())))
            began = int(lost[-1][1])
            return (
                f"{name} is {history.latest()}, since iteration {began}. LiBai trains on all the same and saves what "
                f"comes of it. {_way_back(getattr(trainer, '_hooks', ()), began)}"
            )
    return None


def _way_back(hooks: Iterable[Any], began: int) -> str:
    hook = next((hook for hook in hooks if isinstance(hook, PeriodicCheckpointer)), None)
    folder = getattr(hook.checkpointer, "save_dir", "") if hook is not None else ""
    found = folders.checkpoints(folder) if folder and os.path.isdir(folder) else []
    older = [one for one in found if one.periodic and one.step <= began]
    if hook is None or not older:
        return "There is no checkpoint from before. Ctrl-C stops the run"
    kept = f", which max_to_keep={hook.max_to_keep} will remove" if hook.max_to_keep else ""
    path = os.path.join(folder, older[-1].name)
    return (
        f"The newest checkpoint from before is {path}{kept}: stop the run with Ctrl-C, and resume from there with "
        f"--resume {path}"
    )
