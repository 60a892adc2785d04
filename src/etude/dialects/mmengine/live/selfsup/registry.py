"""MMSelfSup's registries: children of MMEngine's with the scope ``mmselfsup``."""

from __future__ import annotations

from etude.dialects.mmengine.live.registry import children
from etude.dialects.openmm.registries.registry_v2 import Registry

_REGISTRIES = children("mmselfsup")


def __getattr__(name: str) -> Registry:
    if name not in _REGISTRIES:
        raise AttributeError(name)
    return _REGISTRIES[name]
