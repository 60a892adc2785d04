"""Restores names and arguments of mmcv 1.x's layers that mmcv 2.x dropped."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from mmengine.utils import deprecated_api_warning
from torch import Tensor

from etude_openmm.mmcv1.live.overlay import registries
from etude_openmm.mmcv1.overlay import REGISTRIES

_TRANSFORMERS = (
    "ATTENTION", "FEEDFORWARD_NETWORK", "POSITIONAL_ENCODING", "TRANSFORMER_LAYER", "TRANSFORMER_LAYER_SEQUENCE",
)  # fmt: skip


def add_registries(module: ModuleType) -> None:
    """Add the registries to ``mmcv.cnn.bricks``."""
    vars(module).update({name: getattr(registries, name) for name in REGISTRIES})


def add_registries_of_family(module: ModuleType) -> None:
    """Add the registries that a layer's file imports in 1.x, such as ``NORM_LAYERS`` to ``mmcv.cnn.bricks.norm``."""
    if "MODELS" in vars(module):
        known = {id(value): name for name, value in vars(registries).items() if name.isupper()}
        for registry in registries.models_of(module.__name__).registries:
            vars(module).setdefault(known[id(registry)], registry)


def add_transformer_names(module: ModuleType) -> None:
    """Add the registries and 1.x's ``FFN`` to ``mmcv.cnn.bricks.transformer``."""
    vars(module).update({name: getattr(registries, name) for name in _TRANSFORMERS})
    made = _ffn(module.__dict__["FFN"])
    made.__module__, made.__qualname__ = module.__name__, "FFN"
    vars(module)["FFN"] = made
    registries.FEEDFORWARD_NETWORK.register_module(name="FFN", force=True, module=made)


def _ffn(base: Any) -> Any:
    class FFN(base):  # type: ignore[misc]
        """The ``FFN`` of 1.x: it ignores unknown keywords, and has its activation as an attribute."""

        @deprecated_api_warning({"dropout": "ffn_drop", "add_residual": "add_identity"}, cls_name="FFN")  # type: ignore[untyped-decorator]
        def __init__(
            self,
            embed_dims: int = 256,
            feedforward_channels: int = 1024,
            num_fcs: int = 2,
            act_cfg: Any = {"type": "ReLU", "inplace": True},  # noqa: B006
            ffn_drop: float = 0.0,
            dropout_layer: Any = None,
            add_identity: bool = True,
            init_cfg: Any = None,
            **kwargs: Any,
        ) -> None:
            super().__init__(
                embed_dims, feedforward_channels, num_fcs, act_cfg, ffn_drop, dropout_layer, add_identity, init_cfg
            )
            self.act_cfg = act_cfg
            if "gamma2" in self._modules:  # mmcv 2.1 and later scale the result, 1.x does not
                del self.gamma2
                self.__dict__["gamma2"] = _unchanged
            # 1.x puts one activation module into all layers, 2.x makes one for each.
            self.activate = self.layers[0][1]
            for layer in list(self.layers)[1 : num_fcs - 1]:
                layer[1] = self.activate

    return FFN


def _unchanged(x: Tensor) -> Tensor:
    return x
