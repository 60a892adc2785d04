"""Loads mmcv's layers, images and ops from the mmcv on disk, beside Étude's engine modules of ``mmcv``. No torch.

mmcv 1.x has them for the same engine that Étude replaces, so its files run as they are. mmcv-lite 2.x has them for
MMEngine: its files get Étude's engine of mmcv 1.x where they import ``mmengine``, and the names that 2.x dropped are
put back after a file has run. MMTracking imports without torchvision, too.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from etude.dialects import ownership
from etude.dialects.mmcv1 import names
from etude.registry import resolve

_BEGINNINGS = tuple(f"{layer}." for layer in names.FROM_DISK[""])
#: Served module → modules of the disk whose names it has, too.
_UNITED = {
    "mmcv": ("mmcv.image", "mmcv.video", "mmcv.visualization", "mmcv.arraymisc"),
    "mmcv.cnn": ("mmcv.cnn",),
    "mmcv.cnn.utils": ("mmcv.cnn.utils",),
}
#: Registries of layers that mmcv 1.x has in ``mmcv.cnn``; 2.x has one for everything.
REGISTRIES = ("ACTIVATION_LAYERS", "CONV_LAYERS", "NORM_LAYERS", "PADDING_LAYERS", "PLUGIN_LAYERS", "UPSAMPLE_LAYERS")

_COMPILED = "mmcv._ext"
_LIVE = "etude.dialects.mmcv1.live.overlay"
#: Module of mmcv → function that gives it what 1.x has there and 2.x has not.
_RESTORED = {
    "mmcv.cnn.bricks": f"{_LIVE}.restored:add_registries",
    "mmcv.cnn.bricks.transformer": f"{_LIVE}.restored:add_transformer_names",
}
#: Module of mmcv → function that puts ops in plain torch, or torchvision's, in place of those that need compiled code;
#: or gives what the projects that use the module need of later releases of numpy and torch.
_CHANGED = {
    "mmcv.image.photometric": f"{_LIVE}.old_names:restore_for_images",
    "mmcv.ops": f"{_LIVE}.old_names:restore",
    "mmcv.ops.roi_align": f"{_LIVE}.ops:replace_roi_align",
    "mmcv.ops.focal_loss": f"{_LIVE}.ops:replace_focal_loss",
}
#: The one module of MMTracking that imports torchvision, for one function, and all others import it.
_NEEDS_TORCHVISION = "mmtrack.models.sot.stark"


def is_layer(module: str) -> bool:
    """Return whether ``module`` is one that Étude takes from the mmcv on disk."""
    return f"{module}.".startswith(_BEGINNINGS)


def find_spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return how to load ``module`` from the disk; None where it is no layer, or no mmcv has it."""
    top = _folder() if is_layer(module) or module == _COMPILED else None
    if top is None:
        return None
    if module == _COMPILED:
        return importlib.machinery.PathFinder.find_spec(module, [top])
    return _spec(module, top, new=ownership.generation("mmcv") >= 2)


def find_changed(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return how to load a ``module`` of an original that needs a change; None for others.

    That is the one of mmcv 2.x that later releases of numpy break, and the one of MMTracking that needs torchvision.
    """
    if module == _NEEDS_TORCHVISION:
        return _spec_without_torchvision(module)
    top = _folder() if module == "mmcv.image.photometric" else None
    return _spec(module, top, new=False) if top is not None else None


def _spec(module: str, top: str, *, new: bool) -> importlib.machinery.ModuleSpec | None:
    found = ownership.source_in(top, module)
    if found is None:
        return None
    loader = LayerLoader(module, found[0], new=new)
    return importlib.util.spec_from_file_location(module, found[0], loader=loader, submodule_search_locations=found[1])


def _spec_without_torchvision(module: str) -> importlib.machinery.ModuleSpec | None:
    top = ownership.original(module.partition(".")[0])
    found = ownership.source_in(top, module) if top is not None else None
    if found is None:
        return None
    return importlib.util.spec_from_file_location(module, found[0], loader=TorchvisionLoader(module, found[0]))


def _folder() -> str | None:
    """Return the folder of the mmcv on disk; None where there is none, or one of 0.x, whose layers are others."""
    return None if ownership.version("mmcv").startswith("0.") else ownership.original("mmcv")


def missing() -> Mapping[str, str]:
    """Return the names that cannot be had because no mmcv with them is on disk, each with what to do about it."""
    hint = lack_of_layers()
    if not hint:
        return {}
    listed = [f"{module}.{name}" if module else name for module, some in names.FROM_DISK.items() for name in some]
    return dict.fromkeys(listed, hint)


def lack_of_layers() -> str:
    """Say why there are no layers of mmcv, and what to install; empty where there are."""
    if _folder() is not None:
        return ""
    found = ownership.original("mmcv")
    lack = f"mmcv {ownership.version('mmcv')} at {found} is too old" if found else "none is on disk"
    return f"mmcv's layers, images and ops come from mmcv itself, and {lack}: pip install mmcv-lite"


def names_on_disk(module: str) -> Mapping[str, str]:
    """Return the names that the mmcv on disk adds to the served ``module``: name → ``module:attr``."""
    top = _folder() if module in _UNITED else None
    return _exported(module, top) if top is not None else {}


@cache
def _exported(module: str, top: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for source in _UNITED[module]:
        for name, home in _imported_names(os.path.join(top, *source.split(".")[1:], "__init__.py")):
            found[name] = f"{source}.{home}:{name}"
    if module == "mmcv.cnn":
        found |= {name: f"mmcv.cnn.bricks:{name}" for name in REGISTRIES}
    return found


def _imported_names(file: str) -> list[tuple[str, str]]:
    """Return (name, submodule) for everything that a package's ``__init__.py`` takes from its own submodules."""
    try:
        with open(file, encoding="utf-8") as opened:
            body = ast.parse(opened.read()).body
    except (OSError, SyntaxError):
        return []
    return [
        (alias.asname or alias.name, node.module)
        for node in body
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
        for alias in node.names
        if alias.name != "*"
    ]


class LayerLoader(importlib.machinery.SourceFileLoader):
    """Runs a file of mmcv. Files of 2.x import Étude's engine where they say ``mmengine``.

    They do so by an ``__import__`` of their own, so that Python's cache of compiled files serves them as they are.
    """

    def __init__(self, fullname: str, path: str, *, new: bool) -> None:
        super().__init__(fullname, path)
        self.new = new

    def exec_module(self, module: ModuleType) -> None:
        if self.new:
            importing = _importing(module.__name__)
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": importing}
        super().exec_module(module)
        for change in (_CHANGED, _RESTORED) if self.new else (_CHANGED,):
            if module.__name__ in change:
                resolve(change[module.__name__])(module)


class TorchvisionLoader(importlib.machinery.SourceFileLoader):
    """Runs a file that imports functions of torchvision. Étude's stand for them where torchvision does not load."""

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_torchvision}
        super().exec_module(module)


def _import_torchvision(name: str, *args: Any, **kwargs: Any) -> Any:
    try:
        return __import__(name, *args, **kwargs)
    except (ImportError, RuntimeError, OSError):  # not installed, or its compiled part was built for another torch
        if name.partition(".")[0] != "torchvision":
            raise
        return importlib.import_module(f"{_LIVE}.ops")


def _importing(module: str) -> Callable[..., Any]:
    def importing(
        name: str,
        variables: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        if level == 0 and name.partition(".")[0] == "mmengine":
            return resolve(f"{_LIVE}.registries:EngineView")(name if fromlist else "mmengine", module)
        return __import__(name, variables, local, fromlist or (), level)

    return importing
