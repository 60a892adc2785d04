"""MMPretrain's registries: children of MMEngine's with the scope ``mmpretrain``."""

from __future__ import annotations

from etude.dialects.mmengine.live.registry import children
from etude.dialects.openmm.registries.registry_v2 import Registry

_REGISTRIES = children("mmpretrain")


def __getattr__(name: str) -> Registry:
    if name not in _REGISTRIES:
        raise AttributeError(name)
    return _REGISTRIES[name]
