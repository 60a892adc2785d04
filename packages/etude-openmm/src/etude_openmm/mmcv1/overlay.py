"""Loads layers, images and ops from an installed mmcv, beside Étude's own modules of ``mmcv``. Imports no torch.

In mmcv 1.x they belong to the runner that Étude replaces, so its files run as they are. In mmcv-lite 2.x they use
MMEngine: its files get Étude's modules of mmcv 1.x where they import ``mmengine``, and the names that 2.x dropped are
added after a file has run. MMTracking can be imported without torchvision, too.
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
from etude.registry import resolve
from etude_openmm.mmcv1 import names

_BEGINNINGS = tuple(f"{layer}." for layer in names.FROM_DISK[""])
#: Étude's module → installed modules whose names it contains, too.
_UNITED = {
    "mmcv": ("mmcv.image", "mmcv.video", "mmcv.visualization", "mmcv.arraymisc"),
    "mmcv.cnn": ("mmcv.cnn",),
    "mmcv.cnn.utils": ("mmcv.cnn.utils",),
}
#: Layer registries that mmcv 1.x has in ``mmcv.cnn``; 2.x has one registry for everything.
REGISTRIES = ("ACTIVATION_LAYERS", "CONV_LAYERS", "NORM_LAYERS", "PADDING_LAYERS", "PLUGIN_LAYERS", "UPSAMPLE_LAYERS")

_COMPILED = "mmcv._ext"
_PLAIN_OPS = "etude_openmm.shared.ops.ext"
_LIVE = "etude_openmm.mmcv1.live.overlay"
#: Module of mmcv 2.x → the function that adds the names of 1.x.
_RESTORED = {
    "mmcv.cnn.bricks": f"{_LIVE}.restored:add_registries",
    "mmcv.cnn.bricks.transformer": f"{_LIVE}.restored:add_transformer_names",
}
#: Module of mmcv → the function that replaces ops with compiled code by torchvision's or plain torch,
#: or restores names of older numpy and torch for the projects that use the module.
_CHANGED = {
    "mmcv.image.photometric": f"{_LIVE}.old_names:restore_for_images",
    "mmcv.ops": f"{_LIVE}.old_names:restore",
    "mmcv.ops.roi_align": f"{_LIVE}.ops:replace_roi_align",
    "mmcv.ops.focal_loss": f"{_LIVE}.ops:replace_focal_loss",
}
#: The one module of MMTracking that imports torchvision, for a single function. All others import that module.
_NEEDS_TORCHVISION = "mmtrack.models.sot.stark"


def gives_way(package: str) -> bool:
    """Return whether the code that imports ``mmcv`` is to get the original mmcv 2.x."""
    from etude_openmm.shared.generations import takes_mmcv2

    return package == "mmcv" and takes_mmcv2()


def is_layer(module: str) -> bool:
    """Return whether Étude takes ``module`` from the installed mmcv."""
    return f"{module}.".startswith(_BEGINNINGS)


def find_spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return the spec to load ``module`` from the disk; None if it is no layer, or no installed mmcv has it."""
    top = _folder() if is_layer(module) or module == _COMPILED else None
    if top is None:
        return None
    if module == _COMPILED:
        return importlib.machinery.PathFinder.find_spec(module, [top]) or _plain_ops()
    return _spec(module, top, new=ownership.generation("mmcv") >= 2)


def find_changed(module: str) -> importlib.machinery.ModuleSpec | None:
    """Return the spec to load a ``module`` of an original that needs a change; None for other modules.

    These are a module of mmcv 2.x that newer numpy breaks, its compiled ops where none were built, and the one of
    MMTracking that needs torchvision.
    """
    if module == _NEEDS_TORCHVISION:
        return _spec_without_torchvision(module)
    if module == _COMPILED:
        top = _folder()
        is_compiled = top is None or importlib.machinery.PathFinder.find_spec(module, [top]) is not None
        return None if is_compiled else _plain_ops()
    top = _folder() if module == "mmcv.image.photometric" else None
    return _spec(module, top, new=False) if top is not None else None


def _plain_ops() -> importlib.machinery.ModuleSpec | None:
    """Return the spec that runs Étude's ops as ``mmcv._ext``."""
    home = importlib.util.find_spec(_PLAIN_OPS)
    return importlib.util.spec_from_file_location(_COMPILED, home.origin) if home and home.origin else None


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
    """Return the folder of the installed mmcv; None if there is none, or a 0.x one, whose layers differ."""
    return None if ownership.version("mmcv").startswith("0.") else ownership.original("mmcv")


def missing() -> Mapping[str, str]:
    """Return the names that are missing because no mmcv with them is installed, each with a hint."""
    hint = lack_of_layers()
    if not hint:
        return {}
    listed = [f"{module}.{name}" if module else name for module, some in names.FROM_DISK.items() for name in some]
    return dict.fromkeys(listed, hint)


def lack_of_layers() -> str:
    """Return why mmcv's layers are missing and what to install; empty if they are there."""
    if _folder() is not None:
        return ""
    found = ownership.original("mmcv")
    lack = f"mmcv {ownership.version('mmcv')} at {found} is too old" if found else "none is on disk"
    return f"mmcv's layers, images and ops come from mmcv itself, and {lack}: pip install mmcv-lite"


def names_on_disk(module: str) -> Mapping[str, str]:
    """Return the names that the installed mmcv adds to Étude's ``module``: name → ``module:attr``."""
    top = _folder() if module in _UNITED else None
    return _exported(module, top) if top is not None else {}


@cache
def _exported(module: str, top: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for source in _UNITED[module]:
        for name, home in _imported_names(os.path.join(top, *source.split(".")[1:], "__init__.py")):
            found[name] = f"{source}.{home}:{name}"
    if module == "mmcv":
        found |= {part.partition(".")[2]: part for part in _UNITED["mmcv"]}
    if module == "mmcv.cnn":
        found |= {name: f"mmcv.cnn.bricks:{name}" for name in REGISTRIES}
    return found


def _imported_names(file: str) -> list[tuple[str, str]]:
    """Return (name, submodule) for everything that a package's ``__init__.py`` imports from its submodules."""
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
    """Runs a file of mmcv. Files of 2.x get Étude's modules of mmcv 1.x where they import ``mmengine``.

    They have their own ``__import__``, instead of changed source, so that Python's cached bytecode can be used.
    """

    def __init__(self, fullname: str, path: str, *, new: bool) -> None:
        super().__init__(fullname, path)
        self.new = new

    def exec_module(self, module: ModuleType) -> None:
        if self.new:
            importing = _importing(module.__name__)
            module.__dict__["__builtins__"] = {**vars(builtins), "__import__": importing}
        super().exec_module(module)
        if self.new:
            resolve(f"{_LIVE}.restored:add_registries_of_family")(module)
        for change in (_CHANGED, _RESTORED) if self.new else (_CHANGED,):
            if module.__name__ in change:
                resolve(change[module.__name__])(module)


class TorchvisionLoader(importlib.machinery.SourceFileLoader):
    """Runs a file that imports functions of torchvision. Étude's replace them if torchvision cannot be imported."""

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
