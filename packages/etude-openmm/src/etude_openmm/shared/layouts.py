"""Describes the checkpoints of mmcv 1.x and MMEngine to Étude's tools: ``epoch_3.pth``, ``latest.pth``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.checkpoint.formats.layouts import Layout

_METHODS = ("mean", "max", "min", "current", "data", "update", "statistics", "register_statistics")
#: A config that a hook or a message hub carries along. Étude's own classes had another home in its first release.
_CONFIGS = {
    ("mmcv.utils.config", "ConfigDict"): "mapping",
    ("mmengine.config.config", "ConfigDict"): "mapping",
    ("etude_openmm.shared.config.config_v1", "ConfigDict"): "mapping",
    ("etude_openmm.shared.config.dict_v2", "ConfigDict"): "mapping",
    ("etude.dialects.openmm.config.config_v1", "ConfigDict"): "mapping",
    ("etude.dialects.openmm.config.dict_v2", "ConfigDict"): "mapping",
}
_BUFFER = "mmengine.logging.history_buffer"
_BOOKKEEPING = (
    r"meta\.(time|config|cfg|env_info|experiment_name|hook_msgs\.(last|best)_ckpt|etude\.(id|scalars\..*))$"
    r"|message_hub\.(log_scalars\.(.*/)?(time|data_time)|runtime_info\.(cfg|last_ckpt|best_ckpt|experiment_name))"
)


def _done(steps: int, state: Mapping[Any, Any]) -> int:
    """Correct the iteration that mmcv saves, which is the current one inside of an epoch: Étude's entry counts it."""
    own = state.get("etude")
    known = own.get("iter") if isinstance(own, Mapping) else None
    return known if isinstance(known, int) else steps


def _file(weights: Mapping[str, Any], meta: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"meta": dict(meta), "state_dict": dict(weights)}
    return made if optimizer is None else made | {"optimizer": optimizer}


def _file_of_mmengine(weights: Mapping[str, Any], meta: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    hub: dict[str, Any] = {"log_scalars": {}, "runtime_info": {}, "resumed_keys": {}}
    return _file(weights, meta, optimizer) | {"message_hub": hub}


MMCV = Layout(
    name="mmcv",
    holds=lambda state: "state_dict" in state and "meta" in state and "message_hub" not in state,
    steps=(("meta", "iter", 0),),
    correct=_done,
    epochs=(("meta", "epoch"),),
    pointers=("last_checkpoint", "latest.pth"),
    bookkeeping=_BOOKKEEPING,
    pickled=_CONFIGS,
    arrange=_file,
)
MMENGINE = Layout(
    name="mmengine",
    holds=lambda state: "state_dict" in state and "meta" in state and "message_hub" in state,
    steps=(("meta", "iter", 0),),
    epochs=(("meta", "epoch"),),
    pointers=("last_checkpoint",),
    bookkeeping=_BOOKKEEPING,
    pickled={(_BUFFER, "HistoryBuffer"): "object"}
    | {(_BUFFER, f"HistoryBuffer.{method}"): "method" for method in _METHODS},
    arrange=_file_of_mmengine,
)
