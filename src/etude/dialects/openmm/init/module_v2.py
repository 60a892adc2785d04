"""MMEngine's weight initialisation: ``initialize``, and modules that initialise themselves from an ``init_cfg``."""

from __future__ import annotations

import copy
import logging
from abc import ABCMeta
from collections.abc import Iterable
from typing import Any

from torch import nn

from etude.dialects.openmm.init.notes import notes_of
from etude.dialects.openmm.init.rules import PretrainedRule, apply_init_cfg, update_init_info
from etude.dialects.openmm.logging import current_logger, print_log
from etude.dialects.openmm.registries.registry_v2 import build_from_cfg
from etude.dialects.openmm.registries.root import WEIGHT_INITIALIZERS
from etude.dialects.openmm.state import is_wrapper


class BaseModule(nn.Module, metaclass=ABCMeta):
    """``init_weights()`` applies ``init_cfg``, then the children's, then weights of a ``Pretrained`` rule. Once."""

    def __init__(self, init_cfg: Any = None) -> None:
        super().__init__()
        self._is_init = False
        self.init_cfg = copy.deepcopy(init_cfg)

    @property
    def is_init(self) -> bool:
        return self._is_init

    @is_init.setter
    def is_init(self, value: bool) -> None:
        self._is_init = value

    def init_weights(self) -> None:
        with notes_of(self, current_logger()):
            if self._is_init:
                print_log(
                    f"init_weights of {type(self).__name__} has been called more than once.",
                    logger="current",
                    level=logging.WARNING,
                )
                return
            pretrained = self._apply_own()
            self._init_children()
            if pretrained:
                initialize(self, pretrained)
            self._is_init = True

    def _apply_own(self) -> list[Any]:
        """Apply the rules of one's own that are not ``Pretrained``; those come back."""
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
            initialize(self, self.init_cfg)
        return [rule for rule in rules if _is_pretrained(rule)]

    def _init_children(self) -> None:
        for child in self.children():
            inner: Any = child.module if is_wrapper(child) and not hasattr(child, "init_weights") else child
            if hasattr(inner, "init_weights") and not getattr(inner, "is_init", False):
                inner.init_weights()
                update_init_info(
                    inner, init_info=f"Initialized by user-defined `init_weights` in {type(inner).__name__} "
                )

    def __repr__(self) -> str:
        text = super().__repr__()
        return f"{text}\ninit_cfg={self.init_cfg}" if self.init_cfg else text


def _is_pretrained(rule: Any) -> bool:
    if not isinstance(rule, dict):
        return False
    kind = rule.get("type")
    return kind == "Pretrained" or getattr(kind, "__name__", "") == "PretrainedInit"


class Sequential(BaseModule, nn.Sequential):
    """``nn.Sequential`` with an ``init_cfg``."""

    def __init__(self, *args: Any, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.Sequential.__init__(self, *args)


class ModuleList(BaseModule, nn.ModuleList):
    """``nn.ModuleList`` with an ``init_cfg``."""

    def __init__(self, modules: Iterable[nn.Module] | None = None, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.ModuleList.__init__(self, modules)


class ModuleDict(BaseModule, nn.ModuleDict):
    """``nn.ModuleDict`` with an ``init_cfg``."""

    def __init__(self, modules: Any = None, init_cfg: Any = None) -> None:
        BaseModule.__init__(self, init_cfg)
        nn.ModuleDict.__init__(self, modules)


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
