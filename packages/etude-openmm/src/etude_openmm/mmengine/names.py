"""Maps MMEngine's import names (``names.json``) to Étude's modules."""

from __future__ import annotations

from etude.dialects.name_tables import NameTables, Table

#: The version of MMEngine that Étude behaves like. Downstream packages compare it with what they need.
VERSION = "0.10.7"
VERSION_INFO = (0, 10, 7)

#: Package → files by which the original is told from a folder of the user.
MARKS = {
    "mmengine": ("version.py", "runner/runner.py"),
    "mmselfsup": ("__init__.py", "version.py"),
    "mmpretrain": ("__init__.py", "version.py"),
}

_TABLES = NameTables(__file__, __name__)
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
FROM_DISK: dict[str, list[str]] = _TABLES.from_disk
#: Packages that Étude provides even if the original is installed.
ENGINE = ("mmengine",)
#: The module that finds the parts which Étude takes from the installed original.
OVERLAY = "etude_openmm.mmengine.overlay"

#: The entries of the root registries: registry → name → ``module:attr``.
REGISTERED: Table = _TABLES.registered
