"""The import names that MMEngine's users write (``names.json``), where Étude keeps them, and keys of its own."""

from __future__ import annotations

import re
from pathlib import Path

from etude.dialects import ownership
from etude.dialects.name_tables import NameTables, Table

#: The version whose behaviour is kept; users' packages compare it with what they need.
VERSION = "0.10.7"
VERSION_INFO = (0, 10, 7)

_TABLES = NameTables(Path(__file__).with_name("names.json"))
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
FROM_DISK: dict[str, list[str]] = _TABLES.from_disk
#: What Étude serves even where the original is installed.
ENGINE = ("mmengine",)
#: What finds the parts of it that Étude leaves to the original.
OVERLAY = "etude.dialects.mmengine.overlay"

#: What the root registries know without being asked: registry → name → where it is. What MMSelfSup and MMPretrain add
#: is found without their scopes, too. What comes from the mmengine on disk is known where there is one.
_ON_DISK = ownership.original("mmengine") is not None
REGISTERED: Table = {
    registry: {name: target for name, target in entries.items() if _ON_DISK or not target.startswith("mmengine.")}
    for registry, entries in _TABLES.registered.items()
}
#: The same of the registries of MMSelfSup and MMPretrain, by scope.
PROJECTS: dict[str, Table] = _TABLES.projects

#: Keys that no other dialect has.
OWN_KEYS = {
    "optim_wrapper", "train_dataloader", "val_evaluator", "default_hooks", "default_scope", "param_scheduler",
    "env_cfg", "randomness", "log_processor", "visualizer", "test_evaluator", "data_preprocessor",
}  # fmt: skip
#: A config that lies in an installed project.
_IN_PACKAGE = re.compile(r"[/\\](mmpretrain|mmselfsup)[/\\]\.mim[/\\]configs[/\\]")


def package_of(path: str) -> str:
    """Return the package whose installed configs ``path`` is one of; empty for others."""
    found = _IN_PACKAGE.search(path)
    return found[1] if found else ""
