"""Finds the model that a config's ``key`` names: McQuic's own where McQuic is there, Étude's small one where not."""

from __future__ import annotations

import importlib
from typing import Any

import torch
import torch.distributed as dist

from etude.dialects import ownership
from etude.dialects.mcquic.live.data import transforms
from etude.dialects.mcquic.live.model import compressor
from etude.dialects.mcquic.live.registry import ModuleRegistry, find
from etude.errors import ConfigError
from etude.registry import MODELS


def find_model(key: str, *, at: str = "") -> Any:
    """Return what makes the model: ``Compressor``, a key of ``ModuleRegistry`` or Étude's ``MODELS``, a dotted path."""
    if key == "Compressor":
        return _compressor(at)
    if key in MODELS and not ModuleRegistry.has(key):
        return MODELS.get(key)
    return find(ModuleRegistry, key, at=at, others=("Compressor", *MODELS.names()))


def _compressor(at: str) -> Any:
    if ownership.original("mcquic") is None:
        return compressor.Compressor
    try:
        return importlib.import_module("mcquic.modules.compressor").Compressor
    except ImportError as error:
        hint = f"pip install {error.name}" if error.name else ""
        raise ConfigError(f"McQuic's Compressor cannot be imported: {error}", at=at, hint=hint) from error


def crop_of(make: Any) -> int:
    """Return the side of the squares that a model trains on: its own ``crop``, else McQuic's 512."""
    return int(getattr(make, "crop", transforms.CROP))


def join_alone(make: Any) -> bool:
    """Make a process group of one for McQuic's own models, which count their codes across processes in ``forward``.

    Return whether there was none before.
    """
    kinds = make.__mro__ if isinstance(make, type) else ()
    if dist.is_initialized() or not any(kind.__module__.partition(".")[0] == "mcquic" for kind in kinds):
        return False
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    return True
