"""Loads the profiler hooks and the predictor of ``detectron2.engine`` from an installed detectron2.

They are no part of training. Their files import Étude's ``detectron2`` modules, so that their hooks work here.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType
from typing import Any

from etude.dialects import ownership
from etude.dialects.imports import MissingOriginal

_HOMES = {
    "TorchProfiler": "detectron2.engine.hooks",
    "AutogradProfiler": "detectron2.engine.hooks",
    "TorchMemoryStats": "detectron2.engine.hooks",
    "DefaultPredictor": "detectron2.engine.defaults",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(name)
    top = ownership.original("detectron2")
    return _absent(name) if top is None else getattr(_loaded(_HOMES[name], top), name)


@cache
def _loaded(name: str, top: str) -> ModuleType:
    """Run the original's file. ``sys.modules`` keeps Étude's module of this name."""
    found = ownership.source_in(top, name)
    spec = importlib.util.spec_from_file_location(name, found[0]) if found is not None else None
    if spec is None or spec.loader is None:
        raise MissingOriginal(f"the detectron2 at {top} has no {name}", name=name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _absent(name: str) -> type:
    """Return a class that raises an error when it is made: many scripts import it and never use it."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise MissingOriginal(f"{_HOMES[name]}.{name} comes with detectron2, which is not installed", name="detectron2")

    return type(name, (), {"__init__": refuse, "__doc__": f"detectron2's {name}, which needs detectron2."})
