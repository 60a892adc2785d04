"""Maps the import names of mmcv, mmcls and mmtrack (``names.json``) to Étude's modules. Imports no torch."""

from __future__ import annotations

from etude.dialects.name_tables import NameTables, Table

_TABLES = NameTables(__file__, __name__)
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
FROM_DISK: dict[str, list[str]] = _TABLES.from_disk
#: Packages that Étude provides even if the original is installed, and the module that finds their other parts.
ENGINE = ("mmcv",)
OVERLAY = "etude_openmm.mmcv1.overlay"
#: Originals that run unchanged except for single modules, see :func:`.overlay.find_changed`.
CHANGED = ("mmtrack",)
#: Package → files by which the original is told from a folder of the user.
MARKS = dict.fromkeys(("mmcv", "mmcls", "mmdet", "mmtrack"), ("__init__.py", "version.py"))
