"""The import names of McQuic (``names.json``), and where Étude keeps what they mean. No torch."""

from __future__ import annotations

from etude.dialects.name_tables import NameTables, Table

_TABLES = NameTables(__file__)
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
#: What each registry has before any external library is read: registry → key → ``module:attribute``.
REGISTERED: Table = _TABLES.registered
#: What Étude serves even where McQuic is installed: the trainer and its data. Models and layers are McQuic's.
ENGINE = ("mcquic.baseClass", "mcquic.config", "mcquic.datasets", "mcquic.loss", "mcquic.train", "mcquic.utils")
#: What McQuic compiles when it is installed; a checkout that was not built lacks it.
COMPILED = ("mcquic.rans",)
