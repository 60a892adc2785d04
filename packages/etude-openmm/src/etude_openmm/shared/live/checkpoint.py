"""MMEngine's checkpoint functions: load with a report of what did not fit, read safely, write whole or not at all."""

from __future__ import annotations

import os
from typing import Any

from torch import nn

from etude_openmm.shared.live.loader import Loader, below, register_all, revised, save_atomically, state_of
from etude_openmm.shared.logging import print_log, rank
from etude_openmm.shared.state import load_fitting

#: Wrappers put ``module.`` in front of every key.
DEFAULT_REVISE = ((r"^module\.", ""),)


class CheckpointLoader(Loader):
    """Where checkpoints come from; ``register_scheme`` adds sources."""

    _schemes: dict[str, Any] = {}

    @classmethod
    def load_checkpoint(cls, filename: str, map_location: Any = None, logger: Any = "current") -> Any:
        return super().load_checkpoint(filename, map_location, logger)

    @classmethod
    def _announce(cls, source: str, filename: str, logger: Any) -> None:
        print_log(f"Loads checkpoint by {source} backend from path: {filename}", logger=logger)


register_all(CheckpointLoader)


def load_state_dict(module: nn.Module, state_dict: Any, strict: bool = False, logger: Any = None) -> None:
    """Load what fits. The rest is reported, or an error when ``strict``."""
    mismatch = load_fitting(module, state_dict)
    if mismatch and rank() == 0:
        if strict:
            raise RuntimeError(str(mismatch))
        print_log(str(mismatch), logger=logger, level=30)


def _load_checkpoint(filename: str, map_location: Any = None, logger: Any = None) -> Any:
    return CheckpointLoader.load_checkpoint(filename, map_location, logger)


def _load_checkpoint_with_prefix(prefix: str, filename: str, map_location: Any = None) -> dict[str, Any]:
    """Return the part of a file's state dict below ``prefix``."""
    return below(prefix, state_of(_load_checkpoint(filename, map_location, "current"), filename), filename)


def _load_checkpoint_to_model(
    model: nn.Module, checkpoint: Any, strict: bool = False, logger: Any = None, revise_keys: Any = DEFAULT_REVISE
) -> Any:
    load_state_dict(model, revised(state_of(checkpoint, ""), revise_keys), strict, logger)
    return checkpoint


def load_checkpoint(
    model: nn.Module,
    filename: str,
    map_location: Any = None,
    strict: bool = False,
    logger: Any = None,
    revise_keys: Any = DEFAULT_REVISE,
) -> Any:
    """Load weights into ``model``; returns the whole checkpoint."""
    checkpoint = _load_checkpoint(filename, map_location, logger)
    if not isinstance(checkpoint, dict):
        raise RuntimeError(f"No state_dict found in checkpoint file {filename}")
    return _load_checkpoint_to_model(model, checkpoint, strict, logger, revise_keys)


def save_checkpoint(checkpoint: Any, filename: str, file_client_args: Any = None, backend_args: Any = None) -> None:
    """Write ``checkpoint`` to ``filename``."""
    if file_client_args is not None and backend_args is not None:
        raise ValueError('"file_client_args" and "backend_args" cannot be set at the same time.')
    save_atomically(checkpoint, filename)


def find_latest_checkpoint(path: str) -> str | None:
    """Return the file that ``last_checkpoint`` in that folder names; None with a note when there is none."""
    pointer = os.path.join(path, "last_checkpoint")
    if os.path.exists(pointer):
        with open(pointer, encoding="utf-8") as file:
            return file.read().strip()
    print_log("Did not find last_checkpoint to be resumed.", logger="current")
    return None
