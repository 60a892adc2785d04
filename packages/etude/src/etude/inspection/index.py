"""Keeps the signatures of components, so that they need not be imported.

``index.json`` has the signatures of torch and of Étude's components, and the ``index.json`` of a dialect those of its
classes (``python -m etude.inspection.index`` refreshes them). They are valid while torch's version, or Étude's source,
is unchanged. Everything else is read from its source, which takes a few milliseconds per file.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from zlib import crc32

from etude import builtins
from etude.config.imports import Import, find_imports
from etude.config.tree import Tree
from etude.errors import ConfigError
from etude.errors.own_code import is_own
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.inspection import signatures as scan
from etude.inspection.entry_points import entry_points
from etude.inspection.signatures import Parameter, Registered, Signature
from etude.registry import TABLES, Registry

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE = os.path.join(_HOME, "inspection", "index.json")
#: Packages whose signatures are kept, and the modules of them that components are named from.
KEPT = {"torch": ("torch.nn", "torch.optim", "torch.optim.lr_scheduler", "torch.utils.data")}
#: Other names that lead to the same class, as base classes are often written.
_SAME = {
    "torch.nn.modules.module:Module": "torch.nn:Module",
    "torch.nn.modules:Module": "torch.nn:Module",
    "torch.optim.optimizer:Optimizer": "torch.optim:Optimizer",
    "torch.utils.data.dataset:Dataset": "torch.utils.data:Dataset",
}


@record
class Entry:
    """A registered component: its origin, and its parameters (None if unknown)."""

    kind: str
    name: str
    origin: str
    signature: Signature | None


class Index:
    """Resolves a config's names: in the registries, and in what its ``imports`` would add to them."""

    def __init__(self, imports: Sequence[Import] = (), folders: Sequence[str] = ()) -> None:
        self.folders = tuple(folders)
        self.added = _added_by(imports, self.folders)
        self.imported = {entry.module for entry in imports}
        self._signatures: dict[str, Signature | None] = {}

    def origin(self, table: Registry, name: str) -> str:
        """Return ``module:attr`` of what ``name`` would build; empty if nothing has that name."""
        registered = self.added.get(table.kind, {}).get(name)
        if registered is not None:
            return registered.target
        return table.origin(name)

    def names(self, table: Registry) -> list[str]:
        return sorted({*table.names(), *self.added.get(table.kind, ())})

    def signature(self, origin: str) -> Signature | None:
        """Return what ``module:attr`` takes; None where its source does not show it."""
        if origin not in self._signatures:
            self._signatures[origin] = scan.signature(origin, folders=self.folders, known=kept)
        return self._signatures[origin]

    def entries(self, table: Registry) -> list[Entry]:
        """Return every component of a table, sorted by name."""
        found = []
        for name in self.names(table):
            origin = self.origin(table, name)
            found.append(Entry(table.kind, name, origin, self.signature(origin)))
        return found

    def dotted(self, path: str) -> str:
        """Return ``my_pkg.nets:Tiny`` for ``my_pkg.nets.Tiny``, whether or not that exists."""
        module, _, attribute = path.rpartition(".")
        return f"{module}:{attribute}"


def index_of(tree: Tree | None) -> Index:
    """Return what a native config can name, with what the imports of ``tree`` add."""
    if tree is None:
        return Index()
    listed = tree.get("imports", default=[])
    imports, _ = find_imports([listed] if isinstance(listed, str) else listed or [], list(tree.files))
    return Index(imports, [os.path.dirname(file) for file in tree.files])


def table_of(kind: str) -> Registry | None:
    """Return the registry of a spec's kind: ``hook``, or ``hooks`` as ``etude list`` calls it."""
    return next((table for word, table in TABLES.items() if kind in (word, table.kind)), None)


def tables_asked(word: str | None) -> dict[str, Registry]:
    """Return the tables that ``etude list WORD`` means; all of them without a word."""
    found = {name: table for name, table in TABLES.items() if word in (None, name, table.kind)}
    if word is not None and not found:
        hint = suggest(word, TABLES, otherwise=f"there are {', '.join(TABLES)}")
        raise ConfigError(f"there are no components of the kind {word!r}", hint=hint)
    return found


def kept(target: str) -> Signature | None:
    """Return the stored signature of ``module:attr`` while it is still valid."""
    file = _file_with(target)
    entry = _kept(file)["signatures"].get(_SAME.get(target, target))
    if entry is None or not all(_unchanged(source, file) for source in entry.get("sources", ())):
        return None
    if target.partition(":")[0].partition(".")[0] in KEPT and not _same_versions():
        return None
    return _from_json(entry)


def _file_with(target: str) -> str:
    """Return the index that has the signature of ``target``, if any has."""
    top, _, rest = target.partition(":")[0].partition(".")
    if top in ("etude", *KEPT) or not is_own(top):
        return os.path.join(_HOME, "dialects", "native", "index.json") if rest.startswith("dialects.") else FILE
    folder = os.path.join(_parent_of(top), top)
    own = os.path.join(folder, rest.partition(".")[0], "index.json")
    return own if os.path.isfile(own) else os.path.join(folder, "index.json")


@lru_cache(maxsize=16)
def _parent_of(top: str) -> str:
    """Return the folder that holds a top-level package: sources are named from there."""
    spec = importlib.util.find_spec(top)
    return os.path.dirname(os.path.dirname(spec.origin)) if spec is not None and spec.origin else ""


@lru_cache(maxsize=16)
def _kept(path: str = FILE) -> Mapping[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            data: Mapping[str, Any] = json.load(file)
    except (OSError, ValueError):
        return {"versions": {}, "sources": {}, "signatures": {}}
    return data


@lru_cache(maxsize=1)
def _same_versions() -> bool:
    return all(installed(package) in (version, "") for package, version in _kept()["versions"].items())


@lru_cache(maxsize=1024)
def _unchanged(source: str, file: str = FILE) -> bool:
    """Return whether a source of Étude or a guest is unchanged since its signatures were stored."""
    return bool(_kept(file)["sources"].get(source) == _stamp(source))


def _stamp(file: str) -> int | None:
    try:
        with open(os.path.join(_parent_of(file.partition("/")[0]), file), "rb") as stream:
            return crc32(stream.read())
    except OSError:
        return None


def installed(package: str) -> str:
    """Return the version of an installed package by the name of its metadata folder, without importing anything."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return ""
    folder = os.path.dirname(os.path.dirname(spec.origin))
    for name in os.listdir(folder):
        if name.startswith(f"{package}-") and name.endswith(".dist-info"):
            return name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return ""


def _added_by(imports: Sequence[Import], folders: Sequence[str]) -> dict[str, dict[str, Registered]]:
    """Map registry kind → name → what the imports would register there."""
    kinds = {word.upper(): table.kind for word, table in TABLES.items()}
    added: dict[str, dict[str, Registered]] = {}
    for entry in imports:
        if entry.file is None or not entry.file.endswith(".py"):
            continue
        for registered in scan.registrations(entry.module, entry.file, folders=folders):
            kind = kinds.get(registered.table)
            if kind is not None:
                added.setdefault(kind, {})[registered.name] = registered
    return added


def _to_json(signature: Signature) -> dict[str, Any]:
    parameters = [[p.name, p.annotation, p.default, p.word] for p in signature.parameters]
    data: dict[str, Any] = {"parameters": parameters, "doc": signature.doc, "bases": list(signature.bases)}
    flags = {"open": signature.open, "forwards": signature.forwards}
    data |= {name: True for name, value in flags.items() if value}
    return data | ({} if signature.is_class else {"is_class": False})


def _from_json(data: Mapping[str, Any]) -> Signature:
    return Signature(
        parameters=tuple(Parameter(*fields) for fields in data["parameters"]),
        open=data.get("open", False),
        bases=tuple(data["bases"]),
        is_class=data.get("is_class", True),
        doc=data["doc"],
        forwards=data.get("forwards", False),
    )


def make() -> dict[str, Any]:
    """Return the content of ``index.json``: torch's public classes, and every component that comes with Étude."""
    targets = {target for entries in builtins.ENTRIES.values() for target in entries.values()}
    ours = _of_ours(target for target in targets if is_own(target))
    return {"versions": {package: installed(package) for package in KEPT}, **_with_sources({**_of_packages(), **ours})}


def make_for_dialect(folder: str, top: str) -> dict[str, Any]:
    """Return the content of a dialect's ``index.json``: the public classes of its modules, and what else those in
    ``live``, which configs name, offer."""
    files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".py")]
    return _with_sources(_of_ours(target for file in files for target in _public_in(file, top)))


def _with_sources(signatures: dict[str, Any]) -> dict[str, Any]:
    sources = {file for entry in signatures.values() for file in entry.get("sources", ())}
    return {"sources": {file: _stamp(file) for file in sorted(sources)}, "signatures": signatures}


def _public_in(file: str, top: str) -> list[str]:
    relative = os.path.relpath(file, _parent_of(top)).removesuffix(".py").removesuffix(f"{os.sep}__init__")
    source = scan.parse(relative.replace(os.sep, "."), file)
    if source is None:
        return []
    in_live = "live" in source.module.split(".")
    kinds = (ast.ClassDef, ast.FunctionDef) if in_live else ast.ClassDef
    names = [statement.name for statement in source.body if isinstance(statement, kinds)]
    listed = getattr(source.names.get("__all__"), "elts", ()) if in_live else ()
    names += [str(item.value) for item in listed if isinstance(item, ast.Constant)]
    return [f"{source.module}:{name}" for name in names if not name.startswith("_")]


def _of_packages() -> dict[str, Any]:
    modules = [module for modules in KEPT.values() for module in modules]
    targets = [f"{module}:{name}" for module in modules for name in _public_names(module)]
    found = {target: scan.signature(target) for target in targets}
    classes = {target: known for target, known in found.items() if known is not None and known.is_class}
    return {target: _to_json(known) | {"doc": ""} for target, known in classes.items()}  # their prose is their own


def _of_ours(targets: Iterable[str]) -> dict[str, Any]:
    made = {}
    for target in sorted(targets):
        found = scan.signature(target)
        if found is not None:
            origins = [target, *(base for base in found.bases if is_own(base))]
            made[target] = _to_json(found) | {"sources": sorted({_file_of(origin) for origin in origins})}
    return made


def _file_of(origin: str) -> str:
    source = scan.find_source(origin.partition(":")[0])
    return os.path.relpath(source.file, _parent_of(origin.partition(".")[0])) if source else ""


def _public_names(module: str) -> list[str]:
    source = scan.find_source(module)
    names = set(source.names) if source else set()
    for star in source.stars if source else ():
        inner = scan.find_source(star)
        names |= set(inner.names) if inner else set()
    return sorted(name for name in names if name[:1].isupper())


def main() -> None:
    made = {FILE: make()}
    for top in (
        "etude",
        *sorted({value.partition(".")[0] for value in entry_points("etude.dialects").values()} - {"etude"}),
    ):
        importlib.import_module(top)
        home = os.path.join(_parent_of(top), top, "dialects" if top == "etude" else "")
        places = (
            [os.path.join(home, name) for name in sorted(os.listdir(home))]
            if top in ("etude", "etude_openmm")
            else [home]
        )
        for folder in places:
            if os.path.isfile(os.path.join(folder, "__init__.py")):
                made[os.path.join(folder, "index.json")] = make_for_dialect(folder, top)
    for path, data in made.items():
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=None, separators=(",", ":"), sort_keys=True)
            file.write("\n")


if __name__ == "__main__":
    main()
