"""mmcv 1.x's weight initialisation: the registry ``INITIALIZERS`` and ``initialize``."""

from __future__ import annotations

from typing import Any

from torch import nn

from etude.dialects.openmm.init import rules
from etude.dialects.openmm.init.apply import apply_init_cfg
from etude.dialects.openmm.init.rules import PretrainedRule
from etude.dialects.openmm.logging_v1 import get_logger, print_log
from etude.dialects.openmm.registries.registry_v1 import Registry, build_from_cfg

INITIALIZERS = Registry("initializer", scope="mmcv")
for _rule in (
    rules.ConstantInit, rules.XavierInit, rules.NormalInit, rules.TruncNormalInit, rules.UniformInit, rules.KaimingInit,
    rules.Caffe2XavierInit,
):  # fmt: skip
    INITIALIZERS.register_module(name=_rule.__name__.removesuffix("Init"), module=_rule)


@INITIALIZERS.register_module(name="Pretrained")
class PretrainedInit(PretrainedRule):
    """Weights from a checkpoint, or from the part of it below ``prefix``."""

    def __call__(self, module: nn.Module) -> None:
        from etude.dialects.openmm.live import checkpoint_v1

        self.load_into(module, checkpoint_v1, print_log, get_logger("mmcv"))


def initialize(module: nn.Module, init_cfg: Any) -> None:
    """Initialise ``module`` by a rule or a list of rules: ``dict(type='Constant', layer='Conv2d', val=1)``."""
    apply_init_cfg(module, init_cfg, lambda rule: build_from_cfg(rule, INITIALIZERS))
