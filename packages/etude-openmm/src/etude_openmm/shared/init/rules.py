"""How an ``init_cfg`` applies initialisers. These (``ConstantInit``, ``KaimingInit`` …) are mmengine's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from mmengine.model.weight_init import update_init_info
from torch import nn

from etude_openmm.shared.errors import ConfigRuntimeError, ConfigTypeError, ConfigValueError
from etude_openmm.shared.reading.source import require_weights


class PretrainedRule:
    """Loads weights from a checkpoint, or from the part of it below ``prefix``."""

    def __init__(self, checkpoint: str, prefix: str | None = None, map_location: Any = None) -> None:
        self.checkpoint, self.prefix, self.map_location = checkpoint, prefix, map_location

    def load_into(self, module: nn.Module, files: Any, print_log: Callable[..., None], logger: Any) -> None:
        """Load with the functions of ``files``, the checkpoint module of mmcv 1.x or of MMEngine."""
        require_weights(self.checkpoint)
        if self.prefix is None:
            print_log(f"load model from: {self.checkpoint}", logger=logger)
            files.load_checkpoint(module, self.checkpoint, self.map_location, strict=False, logger=logger)
        else:
            print_log(f"load {self.prefix} in model from: {self.checkpoint}", logger=logger)
            state = files._load_checkpoint_with_prefix(self.prefix, self.checkpoint, self.map_location)
            files.load_state_dict(module, state, strict=False, logger=logger)
        if hasattr(module, "_params_init_info"):
            update_init_info(module, init_info=self._get_init_info())

    def _get_init_info(self) -> str:
        return f"{type(self).__name__}: load from {self.checkpoint}"


#: Builds an initialiser from its config.
Make = Callable[[dict[str, Any]], Any]


def apply_init_cfg(module: nn.Module, init_cfg: Any, make: Make) -> None:
    """Apply every rule of ``init_cfg`` in order."""
    if not isinstance(init_cfg, dict | list):
        raise ConfigTypeError(f"init_cfg must be a dict or a list of dict, but got {type(init_cfg)}")
    for rule in [init_cfg] if isinstance(init_cfg, dict) else init_cfg:
        outer = copy.deepcopy(rule)
        override = outer.pop("override", None)
        _apply(module, outer, make, whole=False)
        if override is not None:
            outer.pop("layer", None)
            _apply_override(module, override, outer, make)


def _apply(module: nn.Module, rule: dict[str, Any], make: Make, *, whole: bool) -> None:
    initialiser = make(rule)
    initialiser.wholemodule = whole
    initialiser(module)


def _apply_override(module: nn.Module, override: Any, outer: dict[str, Any], make: Make) -> None:
    if not isinstance(override, dict | list):
        raise ConfigTypeError(f"override must be a dict or a list of dict, but got {type(override)}")
    for one in [override] if isinstance(override, dict) else override:
        rule = copy.deepcopy(one)
        name = rule.pop("name", None)
        if name is None:
            raise ConfigValueError(f'`override` must contain the key "name", but got {rule}')
        if not rule:
            rule.update(outer)
        elif "type" not in rule:
            raise ConfigValueError(f'`override` need "type" key, but got {rule}')
        if not hasattr(module, name):
            raise ConfigRuntimeError(
                f"module did not have attribute {name}, but init_cfg is {rule}.",
                hint=f"it has: {', '.join(child for child, _ in module.named_children())}",
            )
        _apply(getattr(module, name), rule, make, whole=True)


class InitModule(nn.Module):
    """The common part of both ``BaseModule`` classes. Subclasses define ``init_weights``."""

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

    def __repr__(self) -> str:
        text = super().__repr__()
        return f"{text}\ninit_cfg={self.init_cfg}" if self.init_cfg else text


def init_child(child: Any) -> None:
    """Call ``init_weights`` of ``child``, and record that."""
    child.init_weights()
    update_init_info(child, init_info=f"Initialized by user-defined `init_weights` in {type(child).__name__} ")


class SequentialModule(InitModule, nn.Sequential):
    """``nn.Sequential`` with an ``init_cfg``."""

    def __init__(self, *args: Any, init_cfg: Any = None) -> None:
        InitModule.__init__(self, init_cfg)
        nn.Sequential.__init__(self, *args)


class ModuleListModule(InitModule, nn.ModuleList):
    """``nn.ModuleList`` with an ``init_cfg``."""

    def __init__(self, modules: Iterable[nn.Module] | None = None, init_cfg: Any = None) -> None:
        InitModule.__init__(self, init_cfg)
        nn.ModuleList.__init__(self, modules)


class ModuleDictModule(InitModule, nn.ModuleDict):
    """``nn.ModuleDict`` with an ``init_cfg``."""

    def __init__(self, modules: Any = None, init_cfg: Any = None) -> None:
        InitModule.__init__(self, init_cfg)
        nn.ModuleDict.__init__(self, modules)
