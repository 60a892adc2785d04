"""Maps the import names of McQuic (``names.json``) to Étude's modules. Imports no torch."""

from __future__ import annotations

from etude.dialects.name_tables import NameTables, Table

_TABLES = NameTables(__file__, __name__)
MODULES: Table = _TABLES.modules
OUT_OF_SCOPE: dict[str, str] = _TABLES.out_of_scope
#: The built-in entries of each registry: registry → key → ``module:attribute``.
REGISTERED: Table = _TABLES.registered
#: Modules that Étude provides even if McQuic is installed: trainer and data. Models and layers are McQuic's.
ENGINE = ("mcquic.baseClass", "mcquic.config", "mcquic.datasets", "mcquic.loss", "mcquic.train", "mcquic.utils")
#: Modules that McQuic compiles when it is installed. A checkout that was not built lacks them.
COMPILED = ("mcquic.rans",)
#: What ``etude exec -m`` runs in place of a package's own command, which needs a GPU: ``module:function``, first words.
COMMANDS = {
    "mcquic": ("etude_mcquic.command:main", ()),
    "mcquic.train": ("etude_mcquic.command:main", ("train",)),
    "mcquic.validate": ("etude_mcquic.command:main", ("validate",)),
    "mcquic.datasets": ("etude_mcquic.command:main", ("dataset",)),
}
#: Package → files by which the original is told from a folder of the user.
MARKS = {"mcquic": ("__init__.py", "modules/compressor.py")}
