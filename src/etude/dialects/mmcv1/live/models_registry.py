"""``mmcv.cnn.MODELS``: the root of the downstream registries of models."""

from __future__ import annotations

from typing import Any

from etude.dialects.openmm.init.module_v1 import Sequential
from etude.dialects.openmm.registries.registry_v1 import Registry, build_from_cfg


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """A model, or a list of them one after another."""
    if isinstance(cfg, list):
        return Sequential(*[build_from_cfg(one, registry, default_args) for one in cfg])
    return build_from_cfg(cfg, registry, default_args)


MODELS = Registry("model", build_func=build_model_from_cfg, scope="mmcv")
