"""Étude: a fast training engine for PyTorch with exact resume, driven by configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: Public name → the module it lives in; loaded on first use, so that torch can wait.
_NAMES = {
    "train": "etude.api", "load": "etude.inference.load", "export": "etude.inference.export",
    "load_plan": "etude.api", "Options": "etude.building.options", "Hook": "etude.core.hook", "Run": "etude.core.run",
    "Forward": "etude.core.forward", "Step": "etude.core.update",
    "Loader": "etude.data.loader", "Plan": "etude.plan", "ConfigError": "etude.errors",
    "MODELS": "etude.registry", "LOSSES": "etude.registry", "DATASETS": "etude.registry",
    "OPTIMIZERS": "etude.registry", "SCHEDULES": "etude.registry", "LOOPS": "etude.registry",
    "UPDATES": "etude.registry", "HOOKS": "etude.registry", "METRICS": "etude.registry", "WRITERS": "etude.registry",
    "Trainer": "etude.trainer", "replay": "etude.ledger.replay", "summary": "etude.models.summary",
}  # fmt: skip

__all__ = ["__version__", *_NAMES]

if TYPE_CHECKING:
    from etude.api import load_plan as load_plan
    from etude.api import train as train
    from etude.building.options import Options as Options
    from etude.core.forward import Forward as Forward
    from etude.core.hook import Hook as Hook
    from etude.core.run import Run as Run
    from etude.core.update import Step as Step
    from etude.data.loader import Loader as Loader
    from etude.errors import ConfigError as ConfigError
    from etude.inference.export import export as export
    from etude.inference.load import load as load
    from etude.ledger.replay import replay as replay
    from etude.models.summary import summary as summary
    from etude.plan import Plan as Plan
    from etude.registry import DATASETS as DATASETS
    from etude.registry import HOOKS as HOOKS
    from etude.registry import LOOPS as LOOPS
    from etude.registry import LOSSES as LOSSES
    from etude.registry import METRICS as METRICS
    from etude.registry import MODELS as MODELS
    from etude.registry import OPTIMIZERS as OPTIMIZERS
    from etude.registry import SCHEDULES as SCHEDULES
    from etude.registry import UPDATES as UPDATES
    from etude.registry import WRITERS as WRITERS
    from etude.trainer import Trainer as Trainer


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        import gc
        import importlib

        # Modules stay, but Python walks them all for garbage as they grow in number. Beside torch's that takes longer
        # than to load ours.
        collects = gc.isenabled()
        gc.disable()
        try:
            value = getattr(importlib.import_module(_NAMES[name]), name)
        finally:
            if collects:
                gc.enable()
        globals()[name] = value
        return value
    raise AttributeError(f"module 'etude' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
