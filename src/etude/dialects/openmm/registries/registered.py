"""Finds what a script has registered before it calls ``etude.train("config.py")``."""

from __future__ import annotations

from typing import Any

from etude.dialects.openmm.registries.registry_base import EVERY

#: Registries whose variable is not called after their name.
_TABLES = {
    "parameter scheduler": "PARAM_SCHEDULERS",
    "optimizer wrapper constructor": "OPTIM_WRAPPER_CONSTRUCTORS",
    "strategy": "STRATEGIES",
    "evaluator": "EVALUATOR",
    "vis_backend": "VISBACKENDS",
}


def registered_by_hand() -> dict[tuple[str, str], str]:
    """(table, name) → ``module:attr`` of everything in the registries of this process that is not Étude's own."""
    return {
        (_table(registry.name), name): f"{entry.__module__}:{entry.__qualname__}"
        for registry in list(EVERY)
        for name, entry in registry.registered.items()
        if _is_users(entry)
    }


def _table(name: str) -> str:
    """``optimizer builder`` → ``OPTIMIZER_BUILDERS``, the variable that users know it by."""
    return _TABLES.get(name, f"{name.upper().replace(' ', '_').removesuffix('S')}S")


def _is_users(entry: Any) -> bool:
    module = getattr(entry, "__module__", None) or "etude."
    return hasattr(entry, "__qualname__") and not module.startswith(("etude.", "torch."))
