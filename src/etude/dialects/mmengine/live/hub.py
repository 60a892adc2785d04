"""Configs and models of installed packages by ``package::folder/file.py``."""

from __future__ import annotations

import importlib
import os
from typing import Any

from torch import nn

from etude.dialects.mmengine.live.registry import MODELS
from etude.dialects.openmm.config.config_v2 import Config
from etude.dialects.openmm.config.external import (
    _get_cfg_metainfo,
    _get_external_cfg_base_path,
    _get_package_and_cfg_path,
)
from etude.dialects.openmm.live.checkpoint import load_checkpoint
from etude.dialects.openmm.registries.scope import DefaultScope
from etude.dialects.openmm.utils.package import get_installed_path


def get_config(cfg_path: str, pretrained: bool = False) -> Config:
    """The config of an installed package; with ``pretrained`` its ``model_path`` names the weights."""
    package, inner = _get_package_and_cfg_path(cfg_path)
    folder = get_installed_path(package)
    try:
        entry = _get_cfg_metainfo(folder, inner)
    except ValueError:  # a base config is in no index
        return Config.fromfile(_get_external_cfg_base_path(folder, inner))
    cfg = Config.fromfile(os.path.join(folder, ".mim", entry["Config"]))
    if pretrained:
        assert "Weights" in entry, f"the index of {package} names no `Weights` for {inner}"
        cfg.model_path = entry["Weights"]
    return cfg


def get_model(cfg_path: str, pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """The model of that config, built in the package's scope; ``kwargs`` fill what the config leaves open."""
    package = cfg_path.partition("::")[0]
    with DefaultScope.overwrite_default_scope(package):
        cfg = get_config(cfg_path, pretrained)
        if "data_preprocessor" in cfg:
            cfg.model.data_preprocessor = cfg.data_preprocessor
        importlib.import_module(f"{package}.utils").register_all_modules()
        model: Any = MODELS.build(cfg.model, default_args=kwargs)
        if pretrained:
            load_checkpoint(model, cfg.model_path)
            model._is_init = True  # so that a runner does not initialise it again
    made: nn.Module = model
    return made
