"""fvcore's registry, and the models that a yacs config names (``MODEL.META_ARCHITECTURE``)."""

from __future__ import annotations

from typing import Any

import torch

from etude.dialects.libai.lazy.extra import fvcore
from etude.dialects.libai.lazy.reading.errors import near, put_on
from etude.dialects.libai.lazy.targets import locate
from etude.dialects.libai.lazy.yacs_places import about
from etude.errors import ConfigError, OutOfScope

__all__ = ["META_ARCH_REGISTRY", "Registry", "build_model", "locate"]


class Registry(fvcore("common.registry", "a registry of detectron2").Registry):  # type: ignore[misc]
    """fvcore's registry, with a suggestion for a name that is not registered."""

    def get(self, name: str) -> Any:
        try:
            return super().get(name)
        except KeyError as error:
            put_on(error, ConfigError(error.args[0], hint=near(name, self._obj_map)))
            raise


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
