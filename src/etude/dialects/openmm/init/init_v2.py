"""MMEngine's weight initialisation: the initialisers of ``WEIGHT_INITIALIZERS`` and ``initialize``."""

from __future__ import annotations

from typing import Any

from torch import nn

from etude.dialects.openmm.init.apply import apply_init_cfg
from etude.dialects.openmm.init.functions import (
    bias_init_with_prob,
    caffe2_xavier_init,
    constant_init,
    kaiming_init,
    normal_init,
    trunc_normal_,
    trunc_normal_init,
    uniform_init,
    xavier_init,
)
from etude.dialects.openmm.init.rules import (
    BaseInit,
    Caffe2XavierInit,
    ConstantInit,
    KaimingInit,
    NormalInit,
    TruncNormalInit,
    UniformInit,
    XavierInit,
    update_init_info,
)
from etude.dialects.openmm.logging import print_log
from etude.dialects.openmm.registries.registry_v2 import build_from_cfg
from etude.dialects.openmm.registries.root import WEIGHT_INITIALIZERS

__all__ = [
    "BaseInit", "Caffe2XavierInit", "ConstantInit", "KaimingInit", "NormalInit", "PretrainedInit", "TruncNormalInit",
    "UniformInit", "XavierInit", "bias_init_with_prob", "caffe2_xavier_init", "constant_init", "initialize",
    "kaiming_init", "normal_init", "trunc_normal_", "trunc_normal_init", "uniform_init", "update_init_info",
    "xavier_init",
]  # fmt: skip


class PretrainedInit:
    """Weights from a checkpoint, or from the part of it below ``prefix``."""

    def __init__(self, checkpoint: str, prefix: str | None = None, map_location: Any = "cpu") -> None:
        self.checkpoint, self.prefix, self.map_location = checkpoint, prefix, map_location

    def __call__(self, module: nn.Module) -> None:
        from etude.dialects.openmm.live.checkpoint import _load_checkpoint_with_prefix, load_checkpoint, load_state_dict

        if self.prefix is None:
            print_log(f"load model from: {self.checkpoint}", logger="current")
            load_checkpoint(module, self.checkpoint, self.map_location, strict=False, logger="current")
        else:
            print_log(f"load {self.prefix} in model from: {self.checkpoint}", logger="current")
            state = _load_checkpoint_with_prefix(self.prefix, self.checkpoint, self.map_location)
            load_state_dict(module, state, strict=False, logger="current")
        if hasattr(module, "_params_init_info"):
            update_init_info(module, init_info=self._get_init_info())

    def _get_init_info(self) -> str:
        return f"{type(self).__name__}: load from {self.checkpoint}"


def initialize(module: nn.Module, init_cfg: Any) -> None:
    """Initialise ``module`` by a rule or a list of rules: ``dict(type='Constant', layer='Conv2d', val=1)``."""
    apply_init_cfg(module, init_cfg, lambda rule: build_from_cfg(rule, WEIGHT_INITIALIZERS))
