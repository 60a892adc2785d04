"""Layer-wise learning rate decay as MMSelfSup configures it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from etude_openmm.mmengine.live.optim_wrapper.constructor import DefaultOptimWrapperConstructor
from mmselfsup.registry import OPTIM_WRAPPER_CONSTRUCTORS


@OPTIM_WRAPPER_CONSTRUCTORS.register_module()
class LearningRateDecayOptimWrapperConstructor(DefaultOptimWrapperConstructor):
    """MMSelfSup's class: ``optimizer=dict(..., model_type='vit', layer_decay_rate=0.65)``, a group per layer and decay.

    The learning rate of layer i of n is ``lr · layer_decay_rate ** (n - i - 1)``. Of ``paramwise_cfg`` only
    ``custom_keys[...]["decay_mult"]`` counts; if several keys match, the shortest one.
    """

    def _params(self, model: nn.Module, optimizer: dict[str, Any]) -> Any:
        kind, rate = optimizer.pop("model_type", None), optimizer.pop("layer_decay_rate", 1.0)
        assert kind is not None, "model_type (vit, swin or mixmim) should be given beside layer_decay_rate"
        assert kind in _LAYERS, f"model_type should be one of {', '.join(_LAYERS)}, but got {kind!r}"
        params: list[dict[str, Any]] = []
        self.add_params(params, model, model_type=kind, layer_decay_rate=rate)
        return params

    def add_params(  # type: ignore[override]
        self, params: list[dict[str, Any]], module: nn.Module, model_type: str = "vit", layer_decay_rate: float = 1.0
    ) -> None:
        """Append the groups of ``module``, in the order in which their first parameters come."""
        sizes = _sizes(module, model_type)
        last = sum(sizes) + 1
        groups: dict[str, dict[str, Any]] = {}
        for name, param in module.named_parameters():
            if not param.requires_grad:
                continue
            decay = self._decay(name)
            layer = _LAYERS[model_type](name, sizes)
            layer = last if layer is None else layer
            title = f"layer_{layer}_{'decay' if decay != 0 else 'no_decay'}"
            scale = layer_decay_rate ** (last - layer)
            group = groups.setdefault(title, self._empty(title, scale, decay))
            group["params"].append(param)
            group["param_names"].append(name)
        params.extend(groups.values())

    def _decay(self, name: str) -> float | None:
        decay: float | None = self.base_wd
        for key in self.sorted_keys():  # no break: the last match, which is the shortest key, decides
            if key in name:
                decay = self.base_wd * self.paramwise_cfg["custom_keys"][key].get("decay_mult", 1.0)
        return decay

    def _empty(self, title: str, scale: float, decay: float | None) -> dict[str, Any]:
        group: dict[str, Any] = {"params": [], "param_names": [], "lr_scale": scale, "group_name": title}
        group["lr"] = self._scaled_lr(scale)
        if decay is not None:
            group["weight_decay"] = decay
        return group


def _sizes(model: Any, kind: str) -> list[int]:
    """Return the number of layers of each stage of the backbone."""
    backbone = model.backbone
    if kind == "vit":
        return [len(backbone.layers)]
    depths = getattr(backbone, "depths", None)
    stages = backbone.stages if kind == "swin" else backbone.layers
    return [int(depth) for depth in depths] if depths is not None else [len(stage.blocks) for stage in stages]


def _of_vit(name: str, sizes: list[int]) -> int | None:
    if name in ("backbone.cls_token", "backbone.mask_token", "backbone.pos_embed"):
        return 0
    if name.startswith("backbone.patch_embed"):
        return 0
    return int(name.split(".")[2]) + 1 if name.startswith("backbone.layers.") else None


def _of_stages(name: str, sizes: list[int], word: str) -> int | None:
    if "mask_token" in name or name.startswith(("backbone.patch_embed", "backbone.absolute_pos_embed")):
        return 0
    if not name.startswith(f"backbone.{word}."):
        return None
    parts = name.split(".")
    stage = int(parts[2])
    if parts[3] != "blocks":
        return sum(sizes[: stage + 1])
    return sum(sizes[:stage]) + int(parts[4]) + 1


_LAYERS: dict[str, Callable[[str, list[int]], int | None]] = {
    "vit": _of_vit,
    "swin": lambda name, sizes: _of_stages(name, sizes, "stages"),
    "mixmim": lambda name, sizes: _of_stages(name, sizes, "layers"),
}
