"""Gives layer files of mmcv 2.x, which import ``mmengine``, Étude's engine of mmcv 1.x."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from etude.dialects.mmcv1 import names
from etude.dialects.mmcv1.live.overlay.registries import models_of
from etude.registry import resolve

#: Where mmcv 1.x keeps what 2.x takes from MMEngine.
_HOMES = tuple(names.MODULES[module] for module in ("mmcv.utils", "mmcv.runner", "mmcv.cnn", "mmcv"))


class EngineView(ModuleType):
    """``mmengine`` or a submodule of it, as ``importer`` sees it: names of mmcv 1.x first, then MMEngine's own."""

    def __init__(self, name: str, importer: str) -> None:
        super().__init__(name)
        self._importer = importer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "MODELS":
            return models_of(self._importer)
        target = next((home[name] for home in _HOMES if name in home), None)
        if target is not None:
            return resolve(target)
        return getattr(importlib.import_module(self.__name__), name)
