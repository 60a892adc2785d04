"""Takes back what a test registered in McQuic's registries."""

from __future__ import annotations

from etude_mcquic.live.registry import Registry
from tests import isolation

isolation.TABLES.append(lambda: (kind._map for kind in Registry.__subclasses__()))
