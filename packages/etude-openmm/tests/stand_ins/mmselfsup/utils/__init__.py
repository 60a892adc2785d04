"""Helpers that users of MMSelfSup import."""

from __future__ import annotations

import importlib
from typing import Any

from mmengine.model import is_model_wrapper
from mmengine.registry import init_default_scope as set_default_scope
from torch import nn


def get_model(model: nn.Module) -> Any:
    """Return the model without its wrapper."""
    return model.module if is_model_wrapper(model) else model


def register_all_modules(init_default_scope: bool = True) -> None:
    """Import everything that registers something, and make ``mmselfsup`` the default scope."""
    for module in ("engine.hooks", "engine.optimizers", "models"):
        importlib.import_module(f"mmselfsup.{module}")
    if init_default_scope:
        set_default_scope("mmselfsup")
