"""The import names of mmcv, mmcls and mmtrack (``names.json``), and where Étude keeps what they mean. No torch."""

from __future__ import annotations

from etude.dialects.name_tables import NameTables, Table

_TABLES = NameTables(__file__)
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
FROM_DISK: dict[str, list[str]] = _TABLES.from_disk
#: What Étude serves even where the original is installed, and the module that finds the rest of it on the disk.
ENGINE = ("mmcv",)
OVERLAY = "etude.dialects.mmcv1.overlay"
#: Originals that run as they are but for a module or two, which :func:`.overlay.find_changed` knows.
CHANGED = ("mmtrack",)
