"""fvcore's registry, and the models that a yacs config names (``MODEL.META_ARCHITECTURE``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from etude.dialects.libai.lazy.reading.errors import near, put_on
from etude.dialects.libai.lazy.targets import locate
from etude.dialects.libai.lazy.yacs_places import about
from etude.errors import ConfigError, OutOfScope

__all__ = ["META_ARCH_REGISTRY", "Registry", "build_model", "locate"]


class Registry:
    """``@R.register()`` or ``R.register(obj)`` adds under the object's own name; ``R.get(name)`` finds it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._obj_map: dict[str, Any] = {}

    def _do_register(self, name: str, obj: Any) -> None:
        assert name not in self._obj_map, f"An object named '{name}' was already registered in '{self._name}' registry!"
        self._obj_map[name] = obj

    def register(self, obj: Any = None) -> Any:
        if obj is not None:
            self._do_register(obj.__name__, obj)
            return None

        def decorate(target: Any) -> Any:
            self._do_register(target.__name__, target)
            return target

        return decorate

    def get(self, name: str) -> Any:
        found = self._obj_map.get(name)
        if found is None:
            error = KeyError(f"No object named '{name}' found in '{self._name}' registry!")
            put_on(error, ConfigError(error.args[0], hint=near(name, self._obj_map)))
            raise error
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._obj_map

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self._obj_map.items())

    def __repr__(self) -> str:
        return f"Registry of {self._name}: {', '.join(self._obj_map)}"


META_ARCH_REGISTRY = Registry("META_ARCH")
_DETECTION = ("GeneralizedRCNN", "PanopticFPN", "ProposalNetwork", "RetinaNet", "SemanticSegmentor", "FCOS")


def build_model(cfg: Any) -> torch.nn.Module:
    """Build the model that is registered as ``cfg.MODEL.META_ARCHITECTURE``, on its device."""
    name = cfg.MODEL.META_ARCHITECTURE
    if name in _DETECTION and name not in META_ARCH_REGISTRY:
        raise OutOfScope(
            f"MODEL.META_ARCHITECTURE: {name} is out of Étude's scope: detection models come from detectron2, which is "
            "not installed; or register a model of your own with @META_ARCH_REGISTRY.register() and name it here"
        )
    model: torch.nn.Module = META_ARCH_REGISTRY.get(name)(cfg)
    device = str(cfg.MODEL.DEVICE)
    with about("MODEL.DEVICE", hint="such as cpu, cuda or cuda:1"):
        return model.to("cpu" if device.startswith("cuda") and not torch.cuda.is_available() else device)
