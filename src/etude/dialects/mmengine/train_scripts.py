"""Adds to a config what the project's own ``tools/train.py`` adds, so that ``etude train`` runs the same."""

from __future__ import annotations

from typing import Any

from etude.dialects import ownership

#: What a dataloader says unless the config does, by the config's ``default_scope``.
_LOADER = {"pin_memory": True, "persistent_workers": True, "collate_fn": {"type": "default_collate"}}
LOADERS: dict[str, dict[str, Any]] = {"mmpretrain": _LOADER, "mmcls": _LOADER}


def add_defaults(cfg: Any) -> None:
    """Complete the dataloaders of a config whose project is installed; a stand-in of Étude has no script."""
    scope = cfg.get("default_scope")
    if scope not in LOADERS or ownership.original(scope) is None:
        return
    for section in ("train_dataloader", "val_dataloader", "test_dataloader"):
        given = cfg.get(section)
        if isinstance(given, dict):
            known = {key: value for key, value in LOADERS[scope].items() if key not in given}
            if not given.get("num_workers"):
                known.pop("persistent_workers", None)  # torch refuses it without workers
            given.update(known)
