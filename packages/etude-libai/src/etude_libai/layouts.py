"""Describes the checkpoints of LiBai and detectron2 to Étude's tools: ``model_0000999`` and ``last_checkpoint``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from etude.checkpoint.formats.layouts import Layout

#: Folders with these names are LiBai's checkpoints, complete or not.
_NAMED = re.compile(r"model_(?:\d{7,}|best|final)")
#: Times in the event storage, and what writers and checkpointers remember of their files.
_BOOKKEEPING = (
    r"trainer\.(etude\.)?storage\.(history|latest|hints)\.(.*/)?(time|data_time|rank_data_time|eta_seconds)(\.|$)"
    r"|trainer\.(etude\.)?hooks\.(PeriodicWriter\S*\.writers|PeriodicCheckpointer\S*\.recent)\."
)


def _is_folder(path: str) -> bool:
    named = _NAMED.fullmatch(os.path.basename(path.rstrip("/"))) is not None
    return os.path.isdir(path) and (named or os.path.isfile(os.path.join(path, "model")))


def _refuse(path: str) -> str:
    model = os.path.join(path, "model")
    if os.path.isdir(model):
        return (
            "its entry 'model' is a folder that OneFlow's flow.save wrote; save it again from OneFlow as numpy arrays, "
            "and those with torch"
        )
    return "" if os.path.isfile(model) else "it has no entry 'model'"


def _capped(steps: int, state: Mapping[Any, Any]) -> int:
    """Correct the iteration that LiBai saves after the last step, one too many: its schedule has the true one."""
    schedule = state.get("lr_scheduler")
    seen = schedule.get("last_epoch") if isinstance(schedule, Mapping) else None
    return min(steps, seen) if isinstance(seen, int) and seen > 0 else steps


def _has_model(state: Mapping[Any, Any]) -> bool:
    return isinstance(state.get("model"), Mapping)


LIBAI = Layout(
    name="libai",
    holds=lambda state: _has_model(state) and "trainer" in state,
    steps=(("trainer", "iter", 1),),
    correct=_capped,
    pointers=("last_checkpoint",),
    from_zero=("model",),
    final=("model_final",),
    bookkeeping=_BOOKKEEPING,
    is_folder=_is_folder,
    refuse_folder=_refuse,
)
DETECTRON2 = Layout(
    name="detectron2",
    holds=lambda state: _has_model(state) and "trainer" not in state,
    steps=(("", "iteration", 1),),
    correct=_capped,
    pointers=("last_checkpoint",),
    from_zero=("model",),
    final=("model_final",),
    bookkeeping=_BOOKKEEPING,
)
