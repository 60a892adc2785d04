"""mmcv 1.x's weight initialisation: ``BaseModule``, ``initialize`` and the registry ``INITIALIZERS``."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from mmengine.model import weight_init
from torch import nn

from etude_openmm.shared.init.notes import notes_of
from etude_openmm.shared.init.rules import (
    InitModule,
    ModuleDictModule,
    ModuleListModule,
    PretrainedRule,
    SequentialModule,
    apply_init_cfg,
    init_child,
)
from etude_openmm.shared.logging import get_logger, logger_initialized
from etude_openmm.shared.logging import print_log_v1 as print_log
from etude_openmm.shared.registries.registry_v1 import Registry, build_from_cfg


class BaseModule(InitModule):
    """Initialises itself by ``init_cfg``, then its children. With only a ``Pretrained`` rule, children are skipped."""

    def init_weights(self) -> None:
        # As in mmcv, the logger that was set up first: that of the train script.
        logger = get_logger(next(iter(logger_initialized), "mmcv"))
        with notes_of(self, logger):
            name = type(self).__name__
            if self._is_init:
                warnings.warn(f"init_weights of {name} has been called more than once.", stacklevel=2)
                return
            if self.init_cfg:
                print_log(f"initialize {name} with init_cfg {self.init_cfg}", logger=logger, level=logging.DEBUG)
                initialize(self, self.init_cfg)
                # As in mmcv: children are skipped and ``is_init`` stays False. A list of rules does not skip them.
                if isinstance(self.init_cfg, dict) and self.init_cfg.get("type") == "Pretrained":
                    return
            for child in self.children():
                if hasattr(child, "init_weights"):
                    init_child(child)
            self._is_init = True


class Sequential(SequentialModule, BaseModule):
    """``nn.Sequential`` with an ``init_cfg``."""


class ModuleList(ModuleListModule, BaseModule):
    """``nn.ModuleList`` with an ``init_cfg``."""


class ModuleDict(ModuleDictModule, BaseModule):
    """``nn.ModuleDict`` with an ``init_cfg``."""


INITIALIZERS = Registry("initializer", scope="mmcv")
for _rule in (
    weight_init.ConstantInit, weight_init.XavierInit, weight_init.NormalInit, weight_init.TruncNormalInit,
    weight_init.UniformInit, weight_init.KaimingInit, weight_init.Caffe2XavierInit,
):  # fmt: skip
    INITIALIZERS.register_module(name=_rule.__name__.removesuffix("Init"), module=_rule)


@INITIALIZERS.register_module(name="Pretrained")
class PretrainedInit(PretrainedRule):
    """Loads weights from a checkpoint, or from the part of it below ``prefix``."""

    def __call__(self, module: nn.Module) -> None:
        from etude_openmm.shared.live import checkpoint_v1

        self.load_into(module, checkpoint_v1, print_log, get_logger("mmcv"))


def initialize(module: nn.Module, init_cfg: Any) -> None:
    """Initialise ``module`` by a rule or a list of rules: ``dict(type='Constant', layer='Conv2d', val=1)``."""
    apply_init_cfg(module, init_cfg, lambda rule: build_from_cfg(rule, INITIALIZERS))
