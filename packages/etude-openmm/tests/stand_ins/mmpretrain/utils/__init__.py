"""What tools of MMPretrain call first."""

from __future__ import annotations

import importlib


def register_all_modules(init_default_scope: bool = True) -> None:
    for module in ("engine.optimizers", "engine.schedulers"):
        importlib.import_module(f"mmpretrain.{module}")
