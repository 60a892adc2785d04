"""Loads what MMEngine has beside training from the mmengine on disk, over Étude's engine modules. No torch.

Inferencers, the model hub, helpers for tests, test-time augmentation, kinds of data samples and the analysis of
complexity import nothing of MMEngine but what Étude serves, so the original's files run as they are.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
from collections.abc import Mapping

from etude.dialects import ownership

#: Modules, with everything below them, that come from the disk.
_FROM_DISK = (
    "mmengine.analysis", "mmengine.hub", "mmengine.infer", "mmengine.testing", "mmengine.visualization.utils",
    "mmengine._strategy.colossalai", "mmengine._strategy.deepspeed", "mmengine.structures.instance_data",
    "mmengine.structures.label_data", "mmengine.structures.pixel_data", "mmengine.model.test_time_aug",
    "mmengine.model.efficient_conv_bn_eval", "mmengine.hooks.test_time_aug_hook", "mmengine.hooks.profiler_hook",
    "mmengine.hooks.naive_visualization_hook", "mmengine.utils.progressbar_rich",
    "mmengine.utils.dl_utils.time_counter",
)  # fmt: skip
_BEGINNINGS = tuple(f"{module}." for module in _FROM_DISK)
#: Module → our file that stands for it where no mmengine is on disk: projects import it when they are imported.
_STAND_INS = {
    "mmengine.visualization.utils": os.path.join(os.path.dirname(__file__), "live", "visualization", "canvas.py"),
}
_MISSING = "it is no part of training and comes from mmengine itself, of which none is on disk: pip install mmengine"


def is_layer(module: str) -> bool:
    """Return whether ``module`` is one that Étude takes from the mmengine on disk."""
    return f"{module}.".startswith(_BEGINNINGS)


def find_spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return how to load ``module`` from the disk; None where it is Étude's, or no mmengine has it."""
    top = ownership.original("mmengine") if is_layer(module) else None
    if top is None:
        own = _STAND_INS.get(module)
        return importlib.util.spec_from_file_location(module, own) if own is not None else None
    base = os.path.join(top, *module.split(".")[1:])
    for file, folders in ((os.path.join(base, "__init__.py"), [base]), (f"{base}.py", None)):
        if os.path.isfile(file):
            return importlib.util.spec_from_file_location(module, file, submodule_search_locations=folders)
    return None


def find_changed(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return None: Étude answers to all of mmengine."""
    return None


def missing() -> Mapping[str, str]:
    """Return the modules that cannot be had because no mmengine is on disk, each with what to do about it."""
    return {} if ownership.original("mmengine") is not None else dict.fromkeys(_FROM_DISK, _MISSING)


def names_on_disk(module: str) -> Mapping[str, str]:
    """Return what the disk adds to the served ``module``: nothing, as whole modules come from there."""
    return {}
