"""Builds optimizers from mmcv configs, with parameter groups by ``paramwise_cfg``."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from etude.errors.spelling import suggest
from etude_openmm.shared.registries.registry_v1 import Registry, build_from_cfg
from etude_openmm.shared.torch_utils import NORMS

OPTIMIZERS = Registry("optimizer", scope="mmcv")
#: Convolutions of ``mmcv.ops`` whose inner ``conv_offset`` has a rule of its own.
_DEFORMABLE = {"DeformConv2d", "ModulatedDeformConv2d"}
OPTIMIZER_BUILDERS = Registry("optimizer builder", scope="mmcv")

#: The keys of ``paramwise_cfg``. mmcv ignores others, so a misspelt one is only a warning.
PARAMWISE_KEYS = (
    "custom_keys", "bias_lr_mult", "bias_decay_mult", "norm_decay_mult", "dwconv_decay_mult", "dcn_offset_lr_mult",
    "bypass_duplicate",
)  # fmt: skip


def register_torch_optimizers() -> list[str]:
    """Register every optimizer class of ``torch.optim`` under its name."""
    found = []
    for name, value in vars(torch.optim).items():
        if not name.startswith("__") and isinstance(value, type) and issubclass(value, torch.optim.Optimizer):
            OPTIMIZERS.register_module(name=name, module=value)
            found.append(name)
    return found


TORCH_OPTIMIZERS = register_torch_optimizers()


def build_optimizer_constructor(cfg: dict[str, Any]) -> Any:
    return build_from_cfg(cfg, OPTIMIZER_BUILDERS)


def build_optimizer(model: nn.Module, cfg: Mapping[str, Any]) -> Any:
    """Build the optimizer (or dict of optimizers) of ``cfg``, with its ``constructor``."""
    settings: dict[str, Any] = copy.deepcopy(dict(cfg))
    constructor = settings.pop("constructor", "DefaultOptimizerConstructor")
    paramwise = settings.pop("paramwise_cfg", None)
    build = build_optimizer_constructor(
        {"type": constructor, "optimizer_cfg": settings, "paramwise_cfg": paramwise},
    )
    return build(model)


@OPTIMIZER_BUILDERS.register_module()
class DefaultOptimizerConstructor:
    """Makes one group of all parameters, or one group per parameter if ``paramwise_cfg`` has rules.

    ``custom_keys`` come first: the longest key that occurs in ``<module path>.<parameter>`` wins and turns the other
    rules off for that parameter (a parameter of the root module is matched as ``.name``). Frozen parameters get a bare
    group. For weight decay, the norm rule comes first, then the depth-wise rule, then the bias rule.
    """

    def __init__(self, optimizer_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None) -> None:
        if not isinstance(optimizer_cfg, dict):
            raise TypeError(f"optimizer_cfg must be a dict, got {type(optimizer_cfg).__name__}")
        self.optimizer_cfg = optimizer_cfg
        self.paramwise_cfg: dict[str, Any] = {} if paramwise_cfg is None else paramwise_cfg
        self.base_lr = optimizer_cfg.get("lr")
        self.base_wd = optimizer_cfg.get("weight_decay")
        self._validate_cfg()

    def __call__(self, model: nn.Module) -> torch.optim.Optimizer:
        inner = getattr(model, "module", model)
        settings = self.optimizer_cfg.copy()
        # As in mmcv, rules give one group per parameter, even where groups would be equal.
        if not self.paramwise_cfg:
            settings["params"] = inner.parameters()
            return build_from_cfg(settings, OPTIMIZERS)  # type: ignore[no-any-return]
        params: list[dict[str, Any]] = []
        self.add_params(params, inner)
        settings["params"] = params
        return build_from_cfg(settings, OPTIMIZERS)  # type: ignore[no-any-return]

    def add_params(
        self, params: list[dict[str, Any]], module: nn.Module, prefix: str = "", is_dcn_module: Any = None
    ) -> None:
        """Append a group per parameter of ``module`` and, after those, of its children."""
        custom = self.paramwise_cfg.get("custom_keys", {})
        # Longest first, then by alphabet: a sort with reverse=True keeps the order of equals.
        ordered = sorted(sorted(custom), key=len, reverse=True)
        for name, param in module.named_parameters(recurse=False):
            group: dict[str, Any] = {"params": [param]}
            if not param.requires_grad:
                params.append(group)
                continue
            if self.paramwise_cfg.get("bypass_duplicate", False) and self._is_in([group], params):
                warnings.warn(f"{prefix} is duplicate. It is skipped since bypass_duplicate=True", stacklevel=2)
                continue
            key = next((key for key in ordered if key in f"{prefix}.{name}"), None)
            is_offset = bool(is_dcn_module) and "conv_offset" in prefix and isinstance(module, nn.Conv2d)
            rules = self._rules(module, name, is_deformable=bool(is_dcn_module), is_offset=is_offset)
            group |= rules if key is None else self._custom(custom[key])
            params.append(group)
        for child_name, child in module.named_children():
            deformable = any(kind.__name__ in _DEFORMABLE for kind in type(module).__mro__)
            self.add_params(params, child, f"{prefix}.{child_name}" if prefix else child_name, deformable)

    def _custom(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        group = {"lr": self._scaled_lr(rule.get("lr_mult", 1.0))}
        if self.base_wd is not None:
            group["weight_decay"] = self.base_wd * rule.get("decay_mult", 1.0)
        return group

    def _rules(
        self, module: nn.Module, name: str, *, is_deformable: bool = False, is_offset: bool = False
    ) -> dict[str, Any]:
        """Return the rules for a parameter; those of biases leave out the parts of a deformable convolution."""
        get, group = self.paramwise_cfg.get, {}
        norm = isinstance(module, NORMS)
        # As in mmcv, a Conv2d with one input channel counts as depth-wise, Conv1d and Conv3d never do.
        depthwise = isinstance(module, nn.Conv2d) and module.in_channels == module.groups
        if is_offset:
            group["lr"] = self._scaled_lr(get("dcn_offset_lr_mult", 1.0))
        elif name == "bias" and not norm and not is_deformable:
            group["lr"] = self._scaled_lr(get("bias_lr_mult", 1.0))
        if self.base_wd is not None:
            if norm:
                group["weight_decay"] = self.base_wd * get("norm_decay_mult", 1.0)
            elif depthwise:
                group["weight_decay"] = self.base_wd * get("dwconv_decay_mult", 1.0)
            elif name == "bias" and not is_deformable:
                group["weight_decay"] = self.base_wd * get("bias_decay_mult", 1.0)
        return group

    def _scaled_lr(self, factor: float) -> float:
        if self.base_lr is None:
            raise TypeError("paramwise_cfg scales the learning rate, so the optimizer needs an explicit `lr`")
        return float(self.base_lr * factor)

    def _is_in(self, param_group: list[dict[str, Any]], param_group_list: list[dict[str, Any]]) -> bool:
        known = {id(param) for group in param_group_list for param in group["params"]}
        return any(id(param) in known for group in param_group for param in group["params"])

    def _validate_cfg(self) -> None:
        if not isinstance(self.paramwise_cfg, dict):
            raise TypeError(f"paramwise_cfg must be a dict or None, got {type(self.paramwise_cfg).__name__}")
        for key in self.paramwise_cfg:
            if key not in PARAMWISE_KEYS and type(self) is DefaultOptimizerConstructor:
                warnings.warn(f"paramwise_cfg has no rule {key!r}; {suggest(key, PARAMWISE_KEYS)}", stacklevel=4)
        custom = self.paramwise_cfg.get("custom_keys", {})
        if not isinstance(custom, dict):
            raise TypeError(f"custom_keys must be a dict of dicts, got {type(custom).__name__}")
        if self.base_wd is None:
            self._refuse_decay(custom)

    def _refuse_decay(self, custom: Mapping[str, Any]) -> None:
        rules = ("bias_decay_mult", "norm_decay_mult", "dwconv_decay_mult")
        given = [rule for rule in rules if rule in self.paramwise_cfg]
        given += [f"custom_keys[{key!r}].decay_mult" for key, rule in custom.items() if "decay_mult" in rule]
        if given:
            raise ValueError(f"{', '.join(given)}: nothing to scale, the optimizer has no weight_decay")
