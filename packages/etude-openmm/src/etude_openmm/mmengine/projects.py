"""Finds the classes and defaults that the installed project of a config adds. Imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from etude.dialects import ownership
from etude_openmm.shared.checks.project_sources import registered
from etude_openmm.shared.project_names import package_of

#: Default arguments of dataloaders, by the config's ``default_scope``.
_LOADER = {"pin_memory": True, "persistent_workers": True, "collate_fn": {"type": "default_collate"}}
_LOADERS: dict[str, dict[str, Any]] = {"mmpretrain": _LOADER, "mmcls": _LOADER}
#: Other packages whose classes the configs of a project use.
_USES = {"mmselfsup": ("mmcls",)}


def scope_of(values: Mapping[str, Any], files: Iterable[str]) -> str:
    """Return the scope in which the names of a config are looked up."""
    scope = values.get("default_scope")
    return scope if isinstance(scope, str) else next(filter(None, map(package_of, files)), "")


def registered_by(scope: str) -> dict[tuple[str, str], str]:
    """Map (registry, name) → ``module:attr`` for what the installed project of a scope, and mmcv 2.x, register."""
    if scope in ("", "mmengine") or ownership.original(scope) is None:
        return {}
    beside = ("mmcv",) if ownership.generation("mmcv") >= 2 else ()
    found: dict[tuple[str, str], str] = {}
    for package in (*beside, *_USES.get(scope, ()), scope):
        found.update(registered(package))
    return found


def beside_mmcv2() -> tuple[str, ...]:
    """Return the folder of an installed mmcv 2.x: its transforms are read there, though Étude provides ``mmcv``."""
    top = ownership.original("mmcv") if ownership.generation("mmcv") >= 2 else None
    return (os.path.dirname(top),) if top is not None else ()


def with_project(
    registered: Mapping[tuple[str, str], str], values: Mapping[str, Any], files: Iterable[str]
) -> dict[tuple[str, str], str]:
    """Return ``registered``, the classes of this process and of the config's modules, with those of its project.

    A process that has imported MMSelfSup has mmcls' classes, too, and both have a ``BEiT``: the project's is taken.
    """
    theirs = registered_by(scope_of(values, files))
    own = {at: to for at, to in registered.items() if at not in theirs or not ownership.has_marks(to.partition(".")[0])}
    return {**theirs, **own}


def add_defaults(cfg: Any) -> None:
    """Complete the dataloaders of a config as its project's ``tools/train.py`` does, if the project is installed."""
    scope = cfg.get("default_scope") or _package_of_model(cfg.get("model"))
    if scope not in _LOADERS or ownership.original(scope) is None:
        return
    for section in ("train_dataloader", "val_dataloader", "test_dataloader"):
        given = cfg.get(section)
        if isinstance(given, dict):
            known = {key: value for key, value in _LOADERS[scope].items() if key not in given}
            if not given.get("num_workers"):
                known.pop("persistent_workers", None)  # torch refuses it without workers
            given.update(known)


def _package_of_model(model: Any) -> str:
    """Return the package of the model's class: pure-Python configs name classes, and set no scope."""
    kind = model.get("type") if isinstance(model, dict) else None
    path = kind if isinstance(kind, str) else getattr(kind, "__module__", "")
    return path.partition(".")[0]
