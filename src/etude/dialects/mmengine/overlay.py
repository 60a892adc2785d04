"""Loads what MMEngine has beside training from the mmengine on disk, over Étude's engine modules. No torch.

Inferencers, the model hub, helpers for tests, test-time augmentation, kinds of data samples and the analysis of
complexity import nothing of MMEngine but what Étude serves, so the original's files run as they are.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Mapping

from etude.dialects import ownership
from etude.dialects.mmengine import names

_BEGINNINGS = tuple(f"{module}." for module in names.FROM_DISK[""])
_MISSING = "it is no part of training and comes from mmengine itself, of which none is on disk: pip install mmengine"


def is_layer(module: str) -> bool:
    """Return whether ``module`` is one that Étude takes from the mmengine on disk."""
    return f"{module}.".startswith(_BEGINNINGS)


def find_spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return how to load ``module`` from the disk; None where it is Étude's, or no mmengine has it."""
    top = ownership.original("mmengine") if is_layer(module) else None
    found = ownership.source_in(top, module) if top is not None else None
    if found is None:
        return None
    return importlib.util.spec_from_file_location(module, found[0], submodule_search_locations=found[1])


def find_changed(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return None: Étude answers to all of mmengine."""
    return None


def missing() -> Mapping[str, str]:
    """Return the modules that cannot be had because no mmengine is on disk, each with what to do about it."""
    return {} if ownership.original("mmengine") is not None else dict.fromkeys(names.FROM_DISK[""], _MISSING)


def names_on_disk(module: str) -> Mapping[str, str]:
    """Return what the disk adds to the served ``module``: nothing, as whole modules come from there."""
    return {}
