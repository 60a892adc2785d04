"""Loads the parts of MMEngine that are not about training from the installed mmengine. Imports no torch.

Inferencers, the model hub, helpers for tests, test-time augmentation, classes of data samples and the analysis of
complexity import only modules that Étude provides, so the original's files run as they are.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Mapping
from types import ModuleType

from etude.dialects import ownership
from etude.registry import resolve
from etude_openmm.mmengine import names

_BEGINNINGS = tuple(f"{module}." for module in names.FROM_DISK[""])
_CHANGES = "etude_openmm.mmengine.patches"
#: Module → the function that changes it: where today's torch breaks it, or Étude promises more.
_PATCHES = {
    "mmengine.dataset.base_dataset": f"{_CHANGES}:name_the_transform",
    "mmengine.fileio.backends.lmdb_backend": f"{_CHANGES}:open_databases_once",
    "mmengine.fileio.backends.local_backend": f"{_CHANGES}:write_whole_files",
    "mmengine.fileio.handlers.pickle_handler": f"{_CHANGES}:read_pickles_as_data",
    "mmengine.fileio.handlers.yaml_handler": f"{_CHANGES}:read_yaml_as_data",
    "mmengine.fileio.io": f"{_CHANGES}:name_the_file",
    "mmengine.model.utils": f"{_CHANGES}:revert_all_batch_norms",
    "mmengine.model.weight_init": f"{_CHANGES}:report_missing_weights",
    "mmengine.utils.progressbar": f"{_CHANGES}:follow_standard_output",
}
_MISSING = "it comes from mmengine itself, of which none is installed: pip install mmengine-lite (or mmengine)"


def is_layer(module: str) -> bool:
    """Return whether Étude takes ``module`` from the installed mmengine."""
    return f"{module}.".startswith(_BEGINNINGS)


def find_spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return the spec to load ``module`` from the disk; None if it is Étude's, or no installed mmengine has it."""
    top = ownership.original("mmengine") if is_layer(module) else None
    found = ownership.source_in(top, module) if top is not None else None
    if found is None:
        return None
    loader = PatchingLoader(module, found[0]) if module in _PATCHES else None
    return importlib.util.spec_from_file_location(module, found[0], loader=loader, submodule_search_locations=found[1])


def find_changed(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return None: no module of mmengine is changed by Étude."""
    return None


def missing() -> Mapping[str, str]:
    """Return the modules that are missing because mmengine is not installed, each with a hint."""
    return {} if ownership.original("mmengine") is not None else dict.fromkeys(names.FROM_DISK[""], _MISSING)


def names_on_disk(module: str) -> Mapping[str, str]:
    """Return the names that the disk adds to Étude's ``module``: none, because only whole modules come from there."""
    return {}


class PatchingLoader(importlib.machinery.SourceFileLoader):
    """Runs a file of mmengine, and changes what Étude cannot leave as it is."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        resolve(_PATCHES[module.__name__])(module)
