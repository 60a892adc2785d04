"""mmcv 1.x's checkpoint functions: load with a report of what did not fit, read safely, write whole or not at all."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from torch import nn

from etude_openmm.shared.live.loader import Loader, below, register_all, revised, save_atomically, state_of
from etude_openmm.shared.logging import rank
from etude_openmm.shared.state import get_state_dict_v1 as get_state_dict
from etude_openmm.shared.state import load_fitting, unwrapped, weights_to_cpu

#: Wrappers put ``module.`` in front of every key.
DEFAULT_REVISE = ((r"^module\.", ""),)
#: The version whose files these are.
MMCV_VERSION = "1.7.2"


class CheckpointLoader(Loader):
    """Where checkpoints come from; ``register_scheme`` adds sources."""

    _schemes: dict[str, Any] = {}

    @classmethod
    def _announce(cls, source: str, filename: str, logger: Any) -> None:
        if logger is not None:
            logger.info(f"load checkpoint from {source} path: {filename}")


register_all(CheckpointLoader)


def load_state_dict(module: nn.Module, state_dict: Any, strict: bool = False, logger: Any = None) -> None:
    """Load what fits. The rest is one warning on rank 0, or an error when ``strict``."""
    mismatch = load_fitting(module, state_dict)
    if not mismatch or rank() != 0:
        return
    if strict:
        raise RuntimeError(str(mismatch))
    if logger is not None:
        logger.warning(str(mismatch))
    else:
        warnings.warn(str(mismatch), stacklevel=2)


def _load_checkpoint(filename: str, map_location: Any = None, logger: Any = None) -> Any:
    return CheckpointLoader.load_checkpoint(filename, map_location, logger)


def _load_checkpoint_with_prefix(prefix: str, filename: str, map_location: Any = None) -> dict[str, Any]:
    """Return the part of a file's state dict below ``prefix``."""
    return below(prefix, state_of(_load_checkpoint(filename, map_location), filename), filename)


def load_checkpoint(
    model: nn.Module,
    filename: str,
    map_location: Any = None,
    strict: bool = False,
    logger: Any = None,
    revise_keys: Any = DEFAULT_REVISE,
) -> Any:
    """Load weights into ``model``; returns the whole checkpoint. Own ``revise_keys`` replace the default."""
    checkpoint = _load_checkpoint(filename, map_location, logger)
    load_state_dict(model, revised(state_of(checkpoint, filename), revise_keys), strict, logger)
    return checkpoint


def content(model: Any, *, optimizer: Any = None, meta: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what a checkpoint holds, in mmcv's order of keys; ``meta`` is completed in place.

    The weights are on the CPU. The state of several optimizers is a dict by name.
    """
    meta = {} if meta is None else meta
    meta.update(mmcv_version=MMCV_VERSION, time=time.asctime())
    classes = getattr(unwrapped(model), "CLASSES", None)
    if classes is not None:
        meta.update(CLASSES=classes)
    found: dict[str, Any] = {"meta": meta, "state_dict": weights_to_cpu(get_state_dict(model))}
    if isinstance(optimizer, torch.optim.Optimizer):
        found["optimizer"] = optimizer.state_dict()
    elif isinstance(optimizer, dict):
        found["optimizer"] = {name: one.state_dict() for name, one in optimizer.items()}
    return found


def save_checkpoint(
    model: Any, filename: str, optimizer: Any = None, meta: dict[str, Any] | None = None, file_client_args: Any = None
) -> None:
    """Write :func:`content` to ``filename``."""
    if meta is not None and not isinstance(meta, dict):
        raise TypeError(f"meta must be a dict or None, but got {type(meta)}")
    save_atomically(content(model, optimizer=optimizer, meta=meta), filename)
