"""Finds the model of a config's ``key``: McQuic's own, or the user's."""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.distributed as dist

from etude.dialects import ownership
from etude.errors import ConfigError
from etude.registry import MODELS
from etude_mcquic.live.data import transforms
from etude_mcquic.live.registry import ModuleRegistry, find
from etude_mcquic.lower import INSTALL


def find_model(key: str, *, at: str = "") -> Any:
    """Return the class of the model: ``Compressor``, a key of ``ModuleRegistry`` or ``MODELS``, or a dotted path."""
    if key == "Compressor" and not ModuleRegistry.has(key):
        return _compressor(at)
    if key in MODELS and not ModuleRegistry.has(key):
        return MODELS.get(key)
    return find(ModuleRegistry, key, at=at, others=("Compressor", *MODELS.names()))


def _compressor(at: str) -> Any:
    if ownership.original("mcquic") is None:
        raise ConfigError("Compressor is McQuic's own model, and McQuic is not installed", at=at, hint=INSTALL)
    try:
        return importlib.import_module("mcquic.modules.compressor").Compressor
    except ImportError as error:
        hint = f"pip install {error.name}" if error.name else ""
        raise ConfigError(f"McQuic's Compressor cannot be imported: {error}", at=at, hint=hint) from error


def crop_of(make: Any) -> int:
    """Return the size of training crops for a model: its ``crop``, else McQuic's 512."""
    return int(getattr(make, "crop", transforms.CROP))


def join_alone(make: Any) -> bool:
    """Make a process group of one process for McQuic's own models, whose ``forward`` counts codes over processes.

    Return whether a group was made.
    """
    kinds = make.__mro__ if isinstance(make, type) else ()
    if dist.is_initialized() or not any(kind.__module__.partition(".")[0] == "mcquic" for kind in kinds):
        return False
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    return True
