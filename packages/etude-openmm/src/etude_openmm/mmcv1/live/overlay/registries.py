"""The twelve layer registries of mmcv 1.x, in place of the single ``MODELS`` that files of mmcv 2.x use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from etude.registry import resolve
from etude_openmm.mmcv1 import names
from etude_openmm.shared.init.module_v1 import Sequential
from etude_openmm.shared.registries.registry_v1 import Registry, build_from_cfg

# Named as in mmcv 1.x, whose error messages show these names.
CONV_LAYERS = Registry("conv layer", scope="mmcv")
NORM_LAYERS = Registry("norm layer", scope="mmcv")
ACTIVATION_LAYERS = Registry("activation layer", scope="mmcv")
PADDING_LAYERS = Registry("padding layer", scope="mmcv")
UPSAMPLE_LAYERS = Registry("upsample layer", scope="mmcv")
PLUGIN_LAYERS = Registry("plugin layer", scope="mmcv")
DROPOUT_LAYERS = Registry("drop out layers", scope="mmcv")
POSITIONAL_ENCODING = Registry("position encoding", scope="mmcv")
ATTENTION = Registry("attention", scope="mmcv")
FEEDFORWARD_NETWORK = Registry("feed-forward Network", scope="mmcv")
TRANSFORMER_LAYER = Registry("transformerLayer", scope="mmcv")
TRANSFORMER_LAYER_SEQUENCE = Registry("transformer-layers sequence", scope="mmcv")

_TRANSFORMERS = (ATTENTION, FEEDFORWARD_NETWORK, TRANSFORMER_LAYER, TRANSFORMER_LAYER_SEQUENCE, POSITIONAL_ENCODING)
#: File of mmcv 2.x → the registries of 1.x that ``MODELS`` stands for in it; ``PLUGIN_LAYERS`` in all others.
_FAMILIES: dict[str, tuple[Registry, ...]] = {
    **dict.fromkeys(("activation", "hsigmoid", "hswish", "swish"), (ACTIVATION_LAYERS,)),
    **dict.fromkeys(("conv", "conv2d_adaptive_padding", "conv_ws"), (CONV_LAYERS,)),
    **dict.fromkeys(("deform_conv", "modulated_deform_conv", "masked_conv", "saconv"), (CONV_LAYERS,)),
    **dict.fromkeys(("norm", "sync_bn"), (NORM_LAYERS,)),
    **dict.fromkeys(("upsample", "carafe"), (UPSAMPLE_LAYERS,)),
    **dict.fromkeys(("transformer", "multi_scale_deform_attn"), _TRANSFORMERS),
    "padding": (PADDING_LAYERS,),
    "drop": (DROPOUT_LAYERS,),
    "wrappers": (CONV_LAYERS, UPSAMPLE_LAYERS),
}


class LayerModels:
    """Stands for MMEngine's ``MODELS`` in one file of mmcv 2.x."""

    scope = "mmcv"

    def __init__(self, registries: Sequence[Registry]) -> None:
        self.registries = registries

    def register_module(self, name: Any = None, force: bool = False, module: Any = None) -> Any:
        put = self._registration(name, force)
        return put(module) if module is not None else put

    def _registration(self, name: Any, force: bool) -> Callable[[Any], Any]:
        def put(module: Any) -> Any:
            for registry in self.registries:
                registry.register_module(name=name, force=force, module=module)
            return module

        return put

    def get(self, key: str) -> Any:
        return next((found for registry in self.registries if (found := registry.get(key)) is not None), None)

    def build(self, cfg: Any, default_args: Any = None) -> Any:
        kind = {**(default_args or {}), **(cfg if isinstance(cfg, dict) else {})}.get("type")
        homes = [one for one in self.registries if isinstance(kind, str) and one.get(kind) is not None]
        return build_from_cfg(cfg, (homes or self.registries)[0], default_args)

    @contextmanager
    def switch_scope_and_registry(self, scope: str | None) -> Iterator[LayerModels]:
        yield self


def models_of(module: str) -> LayerModels:
    """Return the ``MODELS`` for ``module`` of mmcv 2.x."""
    return LayerModels(_FAMILIES.get(module.rpartition(".")[2], (PLUGIN_LAYERS,)))


#: Names that mmcv 1.x has itself and 2.x imports from MMEngine.
_HOMES = tuple(names.MODULES[module] for module in ("mmcv.utils", "mmcv.runner", "mmcv.cnn", "mmcv"))


class EngineView(ModuleType):
    """Stands for ``mmengine`` or a submodule in ``importer``: names of mmcv 1.x first, then MMEngine's."""

    def __init__(self, name: str, importer: str) -> None:
        super().__init__(name)
        self._importer = importer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "MODELS":
            return models_of(self._importer)
        target = next((home[name] for home in _HOMES if name in home), None)
        if target is not None:
            return resolve(target)
        return getattr(importlib.import_module(self.__name__), name)


def build_model_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build a model, or a ``Sequential`` from a list of configs."""
    if isinstance(cfg, list):
        return Sequential(*[build_from_cfg(one, registry, default_args) for one in cfg])
    return build_from_cfg(cfg, registry, default_args)


MODELS = Registry("model", build_func=build_model_from_cfg, scope="mmcv")
