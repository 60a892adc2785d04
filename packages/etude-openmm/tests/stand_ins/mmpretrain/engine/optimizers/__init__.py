"""Layer-wise learning rate decay as MMPretrain configures it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from etude_openmm.mmengine.live.optim_wrapper.constructor import DefaultOptimWrapperConstructor
from etude_openmm.shared.torch_utils import NORMS
from mmpretrain.registry import OPTIM_WRAPPER_CONSTRUCTORS

Depth = Callable[[str], tuple[int, int]]


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LearningRateDecayOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMPretrain's class: ``lr · layer_decay_rate ** (layers - layer - 1)``, with ``model.get_layer_depth(name)``."""

    def add_params(  # type: ignore[override]
        self,
        params: list[dict[str, Any]],
        module: nn.Module,
        prefix: str = "",
        get_layer_depth: Depth | None = None,
        **kwargs: Any,
    ) -> None:
        depth = get_layer_depth or getattr(module, "get_layer_depth", None)
        if depth is None:
            raise NotImplementedError(
                f"layer-wise learning rates need a method `get_layer_depth`, which {type(module).__name__} has not"
            )
        rate = self.paramwise_cfg.get("layer_decay_rate", 1.0)
        for name, param in module.named_parameters(recurse=False):
            if param.requires_grad:
                group = {"params": [param], **self._decay(module, f"{prefix}{name}", name, param.ndim)}
                layer, layers = depth(f"{prefix}{name}")
                scale = rate ** (layers - layer - 1)
                lr = self._scaled_lr(scale)
                params.append(group | {"lr": lr, "lr_scale": scale, "layer_id": layer, "param_name": f"{prefix}{name}"})
        for name, child in module.named_children():
            self.add_params(params, child, prefix=f"{prefix}{name}.", get_layer_depth=depth)

    def _decay(self, module: nn.Module, full_name: str, name: str, dimensions: int) -> dict[str, Any]:
        if self.base_wd is None:
            return {}
        rules = self.paramwise_cfg
        key = next((key for key in self.sorted_keys() if key in full_name), None)
        if key is not None:
            entry = dict(rules["custom_keys"][key])
            return {"weight_decay": self.base_wd * entry.pop("decay_mult", 1.0), **entry}
        cases = (
            ("norm_decay_mult", isinstance(module, NORMS)),
            ("bias_decay_mult", name == "bias"),
            ("flat_decay_mult", dimensions == 1),
        )
        factors = [rules[rule] for rule, applies in cases if applies and rules.get(rule) is not None]
        return {"weight_decay": self.base_wd * factors[0] if factors else self.base_wd}

    def _params(self, model: nn.Module, optimizer: dict[str, Any]) -> Any:
        params: list[dict[str, Any]] = []
        self.add_params(params, model)
        return params
