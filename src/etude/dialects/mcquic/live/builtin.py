"""What McQuic registers when training starts: torch's schedulers and optimizers, and LAMB."""

from __future__ import annotations

import torch

from etude.dialects.mcquic.live import hooks, schedulers, tuners
from etude.dialects.mcquic.live.model import blocks, losses
from etude.dialects.mcquic.live.registry import REGISTRIES, LrSchedulerRegistry, OptimizerRegistry
from etude.optim.lamb import LAMB

__all__ = ["registerBuiltinFunctions", "summaries"]

#: Importing these registers what they define.
OWN = (blocks, schedulers, losses, hooks, tuners)


def registerBuiltinFunctions() -> None:
    """apex's LAMB where apex is installed, Étude's own where it is not; what a user registered stays."""
    try:
        from apex.optimizers import FusedLAMB as lamb  # type: ignore[import-not-found]
    except ImportError:
        lamb = LAMB
    rates = torch.optim.lr_scheduler
    for registry, entries in (
        (OptimizerRegistry, {"Lamb": lamb, "Adam": torch.optim.Adam}),
        (
            LrSchedulerRegistry,
            {
                "ReduceLROnPlateau": rates.ReduceLROnPlateau,
                "Exponential": rates.ExponentialLR,
                "MultiStep": rates.MultiStepLR,
                "OneCycle": rates.OneCycleLR,
            },
        ),
    ):
        for name, entry in entries.items():
            registry._map.setdefault(name, entry)


def summaries() -> str:
    """Every registry with its entries, as ``-D`` prints them."""
    return "\n".join(f"Summary of {registry}: \r\n{registry.summary()}" for registry in REGISTRIES)
