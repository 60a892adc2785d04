"""MMEngine's weight initialisation: the initialisers of ``WEIGHT_INITIALIZERS`` and ``initialize``."""

from __future__ import annotations

from typing import Any

from torch import nn

from etude.dialects.openmm.init.apply import apply_init_cfg
from etude.dialects.openmm.init.rules import PretrainedRule
from etude.dialects.openmm.logging import print_log
from etude.dialects.openmm.registries.registry_v2 import build_from_cfg
from etude.dialects.openmm.registries.root import WEIGHT_INITIALIZERS


class PretrainedInit(PretrainedRule):
    """Weights from a checkpoint, or from the part of it below ``prefix``."""

    def __init__(self, checkpoint: str, prefix: str | None = None, map_location: Any = "cpu") -> None:
        super().__init__(checkpoint, prefix, map_location)

    def __call__(self, module: nn.Module) -> None:
        from etude.dialects.openmm.live import checkpoint

        self.load_into(module, checkpoint, print_log, "current")


def initialize(module: nn.Module, init_cfg: Any) -> None:
    """Initialise ``module`` by a rule or a list of rules: ``dict(type='Constant', layer='Conv2d', val=1)``."""
    apply_init_cfg(module, init_cfg, lambda rule: build_from_cfg(rule, WEIGHT_INITIALIZERS))
