"""MMEngine's weight initialisation: ``BaseModule`` and ``initialize``."""

from __future__ import annotations

import logging
from abc import ABCMeta
from typing import Any

from torch import nn

from etude_openmm.shared.init.notes import notes_of
from etude_openmm.shared.init.rules import (
    InitModule,
    ModuleDictModule,
    ModuleListModule,
    SequentialModule,
    apply_init_cfg,
    init_child,
)
from etude_openmm.shared.logging import current_logger, log_warning, print_log
from etude_openmm.shared.registries.registry_v2 import build_from_cfg
from etude_openmm.shared.registries.root import WEIGHT_INITIALIZERS
from etude_openmm.shared.state import is_wrapper


class BaseModule(InitModule, metaclass=ABCMeta):
    """Initialises itself once: by ``init_cfg``, then the children, then the weights of a ``Pretrained`` rule."""

    def init_weights(self) -> None:
        with notes_of(self, current_logger()):
            if self._is_init:
                log_warning(f"init_weights of {type(self).__name__} has been called more than once.")
                return
            pretrained = self._apply_own()
            self._init_children()
            # Last, so that the children do not overwrite the loaded weights.
            if pretrained:
                initialize(self, pretrained)
            self._is_init = True

    def _apply_own(self) -> list[Any]:
        """Apply the rules that are not ``Pretrained``, and return those that are."""
        if not self.init_cfg:
            return []
        print_log(
            f"initialize {type(self).__name__} with init_cfg {self.init_cfg}", logger="current", level=logging.DEBUG
        )
        rules = self.init_cfg if isinstance(self.init_cfg, list | tuple) else [self.init_cfg]
        if isinstance(self.init_cfg, list | tuple):
            for rule in rules:
                assert isinstance(rule, dict), f"every rule of an init_cfg is a dict, but got {rule!r}"
        others = [rule for rule in rules if not _is_pretrained(rule)]
        if isinstance(self.init_cfg, list | tuple | dict):
            initialize(self, others)
        else:
            initialize(self, self.init_cfg)  # which refuses it
        return [rule for rule in rules if _is_pretrained(rule)]

    def _init_children(self) -> None:
        for child in self.children():
            inner: Any = child.module if is_wrapper(child) and not hasattr(child, "init_weights") else child
            if hasattr(inner, "init_weights") and not getattr(inner, "is_init", False):
                init_child(inner)


def _is_pretrained(rule: Any) -> bool:
    if not isinstance(rule, dict):
        return False
    kind = rule.get("type")
    return kind == "Pretrained" or getattr(kind, "__name__", "") == "PretrainedInit"


class Sequential(SequentialModule, BaseModule):
    """``nn.Sequential`` with an ``init_cfg``."""


class ModuleList(ModuleListModule, BaseModule):
    """``nn.ModuleList`` with an ``init_cfg``."""


class ModuleDict(ModuleDictModule, BaseModule):
    """``nn.ModuleDict`` with an ``init_cfg``."""


def initialize(module: nn.Module, init_cfg: Any) -> None:
    """Initialise ``module`` by a rule or a list of rules: ``dict(type='Constant', layer='Conv2d', val=1)``."""
    apply_init_cfg(module, init_cfg, lambda rule: build_from_cfg(rule, WEIGHT_INITIALIZERS))
