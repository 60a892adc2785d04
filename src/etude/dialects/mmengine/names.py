"""Maps MMEngine's import names (``names.json``) to Étude's modules, and lists keys that only MMEngine configs have."""

from __future__ import annotations

import re
from pathlib import Path

from etude.dialects import ownership
from etude.dialects.name_tables import NameTables, Table

#: The version of MMEngine that Étude behaves like. Downstream packages compare it with what they need.
VERSION = "0.10.7"
VERSION_INFO = (0, 10, 7)

_TABLES = NameTables(Path(__file__).with_name("names.json"))
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
FROM_DISK: dict[str, list[str]] = _TABLES.from_disk
#: Packages that Étude provides even if the original is installed.
ENGINE = ("mmengine",)
#: The module that finds the parts which Étude takes from the installed original.
OVERLAY = "etude.dialects.mmengine.overlay"

#: The entries of the root registries: registry → name → ``module:attr``. Those of MMSelfSup and MMPretrain
#: are found without their scopes, too. Entries that come from an installed mmengine exist only if there is one.
_ON_DISK = ownership.original("mmengine") is not None
REGISTERED: Table = {
    registry: {name: target for name, target in entries.items() if _ON_DISK or not target.startswith("mmengine.")}
    for registry, entries in _TABLES.registered.items()
}
#: The entries of the registries of MMSelfSup and MMPretrain, by scope.
PROJECTS: dict[str, Table] = _TABLES.projects

#: Keys that no other dialect has.
OWN_KEYS = {
    "optim_wrapper", "train_dataloader", "val_evaluator", "default_hooks", "default_scope", "param_scheduler",
    "env_cfg", "randomness", "log_processor", "visualizer", "test_evaluator", "data_preprocessor",
}  # fmt: skip
#: The path of a config inside an installed project.
_IN_PACKAGE = re.compile(r"[/\\](mmpretrain|mmselfsup)[/\\]\.mim[/\\]configs[/\\]")


def package_of(path: str) -> str:
    """Return the package that ``path``, an installed config, belongs to; empty for other paths."""
    found = _IN_PACKAGE.search(path)
    return found[1] if found else ""
