"""Makes parameter groups by MMEngine's ``paramwise_cfg``, and builds optim wrappers."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn

from etude_openmm.shared.logging import log_warning, print_log
from etude_openmm.shared.registries.root import OPTIM_WRAPPER_CONSTRUCTORS, OPTIM_WRAPPERS, OPTIMIZERS
from etude_openmm.shared.torch_utils import NORMS

#: Multipliers that need a ``weight_decay``. ``flat_decay_mult`` does too, but MMEngine does not check that one.
_DECAY_MULTIPLIERS = ("bias_decay_mult", "norm_decay_mult", "dwconv_decay_mult")
_DEFORMABLE = {"DeformConv2d", "ModulatedDeformConv2d"}


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class DefaultOptimWrapperConstructor:
    """Builds one group of all parameters; with ``paramwise_cfg``, one group per parameter that is not frozen.

    ``custom_keys``: the longest key that is part of ``"<module>.<parameter>"`` decides about a parameter. All its
    entries go into the group, and no other rule applies. Otherwise ``bias_lr_mult``, ``dcn_offset_lr_mult`` and,
    the first that matches, ``norm_decay_mult``, ``bias_decay_mult``, ``dwconv_decay_mult``, ``flat_decay_mult``.
    ``bypass_duplicate`` skips a parameter that two modules share when it comes a second time.
    """

    def __init__(self, optim_wrapper_cfg: dict[str, Any], paramwise_cfg: dict[str, Any] | None = None) -> None:
        if not isinstance(optim_wrapper_cfg, dict):
            raise TypeError(f"optimizer_cfg should be a dict, but got {type(optim_wrapper_cfg)}")
        assert "optimizer" in optim_wrapper_cfg, '`optim_wrapper_cfg` must contain "optimizer" config'
        self.optim_wrapper_cfg = optim_wrapper_cfg.copy()
        self.optimizer_cfg = self.optim_wrapper_cfg.pop("optimizer")
        self.paramwise_cfg = {} if paramwise_cfg is None else paramwise_cfg
        self.base_lr = self.optimizer_cfg.get("lr", None)
        self.base_wd = self.optimizer_cfg.get("weight_decay", None)
        self._validate_cfg()

    def _validate_cfg(self) -> None:
        if not isinstance(self.paramwise_cfg, dict):
            raise TypeError(f"paramwise_cfg should be None or a dict, but got {type(self.paramwise_cfg)}")
        custom = self.paramwise_cfg.get("custom_keys", {})
        if not isinstance(custom, dict):
            raise TypeError(f"If specified, custom_keys must be a dict, but got {type(custom)}")
        scaled = [key for key in _DECAY_MULTIPLIERS if key in self.paramwise_cfg]
        scaled += [f"custom_keys[{key!r}].decay_mult" for key, entry in custom.items() if "decay_mult" in entry]
        if scaled and self.base_wd is None:
            raise ValueError(f"base_wd should not be None: {scaled[0]} needs a weight_decay in the optimizer's config")

    # -- groups --------------------------------------------------------------------------------------------------

    def sorted_keys(self) -> list[str]:
        """Return ``custom_keys``, the longest first, those of equal length in alphabetical order."""
        return sorted(sorted(self.paramwise_cfg.get("custom_keys", {})), key=len, reverse=True)

    def add_params(
        self,
        params: list[dict[str, Any]],
        module: nn.Module,
        prefix: str = "",
        is_dcn_module: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Append a group for every parameter of ``module`` and of the modules below it."""
        skip_twins = self.paramwise_cfg.get("bypass_duplicate", False)
        for name, param in module.named_parameters(recurse=False):
            group: dict[str, Any] = {"params": [param]}
            if skip_twins and self._is_in(group, params):
                log_warning(f"{prefix} is duplicate. It is skipped since bypass_duplicate=True")
                continue
            if not param.requires_grad:
                log_warning(f"{prefix}.{name} is skipped since its requires_grad=False")
                continue
            if not self._by_custom_key(group, f"{prefix}.{name}"):
                self._by_rules(group, module, prefix, name, bool(is_dcn_module))
            params.append(group)
            _log_options(group, f"{prefix}.{name}" if prefix else name)
        deformable = any(kind.__name__ in _DEFORMABLE for kind in type(module).__mro__)
        for name, child in module.named_children():
            self.add_params(params, child, prefix=f"{prefix}.{name}" if prefix else name, is_dcn_module=deformable)

    def _is_in(self, param_group: dict[str, Any], param_group_list: list[dict[str, Any]]) -> bool:
        own = {id(param) for param in param_group["params"]}
        return any(id(param) in own for group in param_group_list for param in group["params"])

    def _by_custom_key(self, group: dict[str, Any], name: str) -> bool:
        key = next((key for key in self.sorted_keys() if key in name), None)
        if key is None:
            return False
        entry = self.paramwise_cfg["custom_keys"][key]
        if self.base_lr is not None or "lr_mult" in entry:
            group["lr"] = self._scaled_lr(entry.get("lr_mult", 1.0))
        if self.base_wd is not None:
            group["weight_decay"] = self.base_wd * entry.get("decay_mult", 1.0)
        # All of the entry: optimizers and hooks look for keys such as ``lars_exclude`` and ``fix_lr``.
        group.update(entry)
        return True

    def _by_rules(self, group: dict[str, Any], module: nn.Module, prefix: str, name: str, in_dcn: bool) -> None:
        rules = self.paramwise_cfg
        is_norm = isinstance(module, NORMS)
        if name == "bias" and not is_norm and not in_dcn and rules.get("bias_lr_mult") is not None:
            group["lr"] = self._scaled_lr(rules["bias_lr_mult"])
        is_offset = "conv_offset" in prefix and in_dcn and isinstance(module, nn.Conv2d)
        if is_offset and rules.get("dcn_offset_lr_mult") is not None:
            group["lr"] = self._scaled_lr(rules["dcn_offset_lr_mult"])
        if self.base_wd is None:
            return
        # As in MMEngine, a convolution of one input channel counts as depth-wise.
        is_depthwise = isinstance(module, nn.Conv2d) and module.in_channels == module.groups
        cases = (
            ("norm_decay_mult", is_norm),
            ("bias_decay_mult", name == "bias" and not in_dcn),
            ("dwconv_decay_mult", is_depthwise),
            ("flat_decay_mult", group["params"][0].ndim == 1 and not in_dcn),
        )
        for rule, applies in cases:
            if applies and rules.get(rule) is not None:
                group["weight_decay"] = self.base_wd * rules[rule]
                return

    def _scaled_lr(self, factor: float) -> float:
        if self.base_lr is None:
            raise ValueError("a learning rate multiplier needs an `lr` in the optimizer's config")
        scaled: float = self.base_lr * factor
        return scaled

    # -- optimizer and wrapper -----------------------------------------------------------------------------------

    def __call__(self, model: nn.Module) -> Any:
        if hasattr(model, "module"):
            model = model.module  # type: ignore[assignment]
        wrapper = {"type": "OptimWrapper", **self.optim_wrapper_cfg}
        optimizer = dict(self.optimizer_cfg)
        optimizer[_first_argument(optimizer.get("type"))] = self._params(model, optimizer)
        return OPTIM_WRAPPERS.build(wrapper, default_args={"optimizer": OPTIMIZERS.build(optimizer)})

    def _params(self, model: nn.Module, optimizer: dict[str, Any]) -> Any:
        if not self.paramwise_cfg:
            return model.parameters()
        params: list[dict[str, Any]] = []
        self.add_params(params, model)
        self._warn_of_idle_keys(model)
        return params

    def _warn_of_idle_keys(self, model: nn.Module) -> None:
        """Warn about custom keys that match no parameter: most often they are misspelt."""
        # As in add_params, where the prefix of the model's own parameters is empty.
        names = [name if "." in name else f".{name}" for name, _ in model.named_parameters(remove_duplicate=False)]
        for key in self.sorted_keys():
            if not any(key in name for name in names):
                log_warning(f"custom_keys[{key!r}] matches no parameter of the model")


def _first_argument(kind: Any) -> str:
    """Return the name of an optimizer's first argument, the parameters; not all optimizers call it ``params``."""
    if isinstance(kind, str):
        with OPTIMIZERS.switch_scope_and_registry(None) as registry:
            kind = registry.get(kind)
    return next(iter(inspect.signature(kind).parameters)) if callable(kind) else "params"


def _log_options(group: dict[str, Any], name: str) -> None:
    for key, value in group.items():
        if key != "params":
            print_log(f"paramwise_options -- {name}:{key}={value}", logger="current")


def build_optim_wrapper(model: nn.Module, cfg: dict[str, Any]) -> Any:
    """Build the optim wrapper of ``cfg``; ``constructor`` and ``paramwise_cfg`` make its groups."""
    wrapper = copy.deepcopy(cfg)
    constructor = wrapper.pop("constructor", "DefaultOptimWrapperConstructor")
    paramwise = wrapper.pop("paramwise_cfg", None)
    made = OPTIM_WRAPPER_CONSTRUCTORS.build(
        {"type": constructor, "optim_wrapper_cfg": wrapper, "paramwise_cfg": paramwise}
    )
    return made(model)


#: Names of torch's optimizers that a config may use.
TORCH_OPTIMIZERS: list[str] = [
    "TorchAdafactor" if name == "Adafactor" else name
    for name, found in vars(torch.optim).items()
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer)
]

#: Optimizers of other packages have no short names here: a config names them by their path (``type="pkg.Optimizer"``).
NPU_OPTIMIZERS: list[str] = []
DADAPTATION_OPTIMIZERS: list[str] = []
LION_OPTIMIZERS: list[str] = []
SOPHIA_OPTIMIZERS: list[str] = []
BITSANDBYTES_OPTIMIZERS: list[str] = []
TRANSFORMERS_OPTIMIZERS: list[str] = []
