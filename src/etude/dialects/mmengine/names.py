"""The import names that MMEngine's users write, and where Étude keeps what they mean. No torch.

The table is kept in pieces, one per area of the package; a module whose names come from several pieces is united.
"""

from __future__ import annotations

from collections.abc import Mapping

from etude.dialects.mmengine import names_common, names_engine, names_kinds, names_parts
from etude.dialects.mmengine.names_imported import IMPORTED

_PIECES = (names_common, names_parts, names_engine, names_kinds)


def _united(tables: list[Mapping[str, Mapping[str, str]]]) -> dict[str, dict[str, str]]:
    united: dict[str, dict[str, str]] = {}
    for table in tables:
        for module, names in table.items():
            united.setdefault(module, {}).update(names)
    return united


def _imported(modules: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """The names that the original's files have from one another, with the targets that they have at their homes."""
    homes: dict[str, str] = {}
    for module, names in modules.items():
        if module.startswith("mmengine"):
            homes = {**names, **homes}
    return {module: {name: homes[name] for name in names.split()} for module, names in IMPORTED.items()}


MODULES: dict[str, dict[str, str]] = _united([piece.MODULES for piece in _PIECES])
MODULES = _united([_imported(MODULES), MODULES])
OUT_OF_SCOPE: dict[str, str] = {name: why for piece in _PIECES for name, why in piece.OUT_OF_SCOPE.items()}
#: What Étude serves even where the original is installed.
ENGINE = ("mmengine",)
#: What finds the parts of it that Étude leaves to the original.
OVERLAY = "etude.dialects.mmengine.overlay"
