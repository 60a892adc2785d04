"""Serves the import names of other systems (``mmcv.runner``, ``mmengine`` …) as :mod:`~etude.dialects.ownership` rules.

Each dialect lists what it serves in ``names.json``; :mod:`etude.dialects.name_tables` describes its format. A served
module looks its attributes up when they are first asked for, so importing ``mmcv`` imports nothing heavy.
Files of the user below a folder of the same name (``mmtrack/core/my_optimizer.py``) stay importable.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from etude.dialects import ownership
from etude.errors import OutOfScope, UserError
from etude.errors.own_code import is_own
from etude.errors.spelling import nearest, suggest
from etude.inspection.entry_points import entry_points
from etude.registry import resolve


class MissingName(UserError, ModuleNotFoundError):
    """A name that a served module does not have. Python's own words for it would hide the near ones."""


class MissingOriginal(UserError, ImportError):
    """Something that Étude leaves to another package, which is not installed or of another generation."""


class Served(ModuleType):
    """A module made of a table of names; unknown names are answered with the near ones."""

    _table: Mapping[str, str]
    _out: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        table: Mapping[str, str] = self.__dict__.get("_table", {})
        if name in table:
            target = table[name]
            if target.endswith("()"):
                return resolve(target.removesuffix("()"))()
            value = resolve(target) if ":" in target else importlib.import_module(target)
            # Not with setattr, which would set the name at its home, too.
            self.__dict__[name] = value
            return value
        full = f"{self.__name__}.{name}"
        if full in _tables_for(full).modules or _from_disk(full) is not None:
            return importlib.import_module(full)
        if name.startswith("__"):
            raise AttributeError(name)
        reason = reason_against(self.__name__, name)
        if reason:
            raise OutOfScope(reason)
        twin = _twin(self.__name__)
        if twin and hasattr(importlib.import_module(twin), name):
            return getattr(importlib.import_module(twin), name)
        raise AttributeError(_lacks(self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a name here and at its home, where other code looks it up: tests of projects replace names so.

        Importing a submodule sets it, too; it must not hide a function of the same name.
        """
        is_submodule = isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"
        if is_submodule and name in self.__dict__.get("_table", {}):
            return
        target = self.__dict__.get("_table", {}).get(name, "")
        current = getattr(self, name) if target else None
        home = _home(target)
        if home is not None:
            originals = self.__dict__.setdefault("_originals", {}).setdefault(name, {})
            for module, attribute in (home, *_users(self, name, current)):
                originals.setdefault((module, attribute), getattr(module, attribute))
            for module, attribute in originals:
                setattr(module, attribute, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        for (module, attribute), value in self.__dict__.get("_originals", {}).pop(name, {}).items():
            setattr(module, attribute, value)
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        return sorted(set(super().__dir__()) | set(self.__dict__.get("_table", {})))


def _lacks(module: ModuleType, name: str) -> str:
    table: Mapping[str, str] = module.__dict__.get("_table", {})
    below = [
        full.rpartition(".")[2]
        for full in _tables_for(module.__name__).modules
        if full.rpartition(".")[0] == module.__name__
    ]
    known = table if nearest(name, list(table)) else [*table, *below]
    return f"module {module.__name__!r} (served by Étude) has no {name!r}; {suggest(name, known)}"


def _home(target: str) -> tuple[ModuleType, str] | None:
    """Return the module and attribute that a table's entry names, when the module has been imported."""
    module, _, attribute = target.partition(":")
    found = sys.modules.get(module)
    return (found, attribute) if found is not None and attribute and "." not in attribute else None


def _users(served: Served, name: str, value: Any) -> list[tuple[ModuleType, str]]:
    """Return the modules that imported ``name`` from its home: those of a served one's targets and their bases."""
    owners = {target.partition(":")[0] for target in served._table.values()}
    for made in list(served.__dict__.values()):
        if isinstance(made, type):
            owners |= {base.__module__ for base in made.__mro__}
    found = [sys.modules[module] for module in owners if is_own(module) and module in sys.modules]
    return [(module, name) for module in found if module.__dict__.get(name) is value]


class UserPath(list[str]):
    """Folders of the user that stand for a served module; looked up anew each time, for a ``sys.path`` that grows.

    Where Étude owns only parts of a package, the original's folder belongs to them: it has the other parts.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __iter__(self) -> Iterator[str]:
        rest = [] if is_owned(self.name.partition(".")[0]) else ownership.original_folders(self.name)
        return iter([*ownership.user_folders(self.name), *rest, *super().__iter__()])


class Finder:
    """Finds the modules that Étude serves: those it owns, and stand-ins for packages that are not there.

    It finds and loads without the base classes for that: to import those takes as long as half of a check.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package = fullname.partition(".")[0]
        if package not in packages():
            return None
        if not (_answers(fullname) or _stands_in(fullname, path)):
            overlay = _tables_for(package).overlays.get(package)
            changed: importlib.machinery.ModuleSpec | None = overlay.find_changed(fullname) if overlay else None
            return changed
        if fullname in _tables_for(fullname).modules:
            # A package, whatever it is in the original: files of the user may lie below a folder of its name.
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]
        on_disk = _from_disk(fullname)
        if on_disk is not None or ownership.is_users(fullname):
            return on_disk
        reason = _out_of_scope(fullname)
        # A file of the user below the package is not refused.
        if reason and (path is None or importlib.machinery.PathFinder.find_spec(fullname, path) is None):
            raise OutOfScope(_refusal(fullname, reason), name=fullname)
        if _twin(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]
        self._refuse_unknown(fullname, path)
        return None

    def _refuse_unknown(self, fullname: str, path: Sequence[str] | None) -> None:
        """Raise the error with the near names for ``from served import unknown``.

        Python asks for a submodule when the module lacks the name, and would then raise another error.
        """
        parent, _, name = fullname.rpartition(".")
        module = sys.modules.get(parent)
        if not isinstance(module, Served) or name in module._table:  # a class that is asked for as a module
            return
        if importlib.machinery.PathFinder.find_spec(fullname, path) is None:
            raise MissingName(_lacks(module, name), name=parent)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = Served(spec.name)
        table = _names(spec.name)
        module._table = table
        module.__all__ = [name for name in table if not name.startswith("_")]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Run the ``__init__.py`` of the user's folder of this name, if there is one: it adds to the served names."""
        module.__path__ = UserPath(module.__name__)
        folders = ownership.user_folders(module.__name__)
        files = (os.path.join(folder, "__init__.py") for folder in folders)
        own = next((file for file in files if os.path.isfile(file)), None)
        top = ownership.original(module.__name__) if own is None and "." not in module.__name__ else None
        if top is not None:
            vars(module)["__file__"] = os.path.join(top, "__init__.py")  # users look for files of the original there
        if own is not None:
            code = importlib.machinery.SourceFileLoader(module.__name__, own).get_code(module.__name__)
            vars(module)["__file__"] = own
            exec(code, vars(module))  # type: ignore[arg-type]


def packages() -> Mapping[str, str]:
    """Map the packages that dialects answer to, to the modules with their tables: every import of the process asks."""
    return entry_points(ownership.IMPORTS)


def install() -> None:
    """Make the import names of other systems work in this process."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    _refuse_late_install()
    # First: an engine is Étude's although the original is installed and would be found.
    sys.meta_path.insert(0, Finder())


def _refuse_late_install() -> None:
    """Raise an error if an original has been imported: it would stay along with Étude's, with its own registries."""
    for package in packages():
        module = sys.modules.get(package)
        if module is not None and not isinstance(module, Served) and is_owned(package):
            at = getattr(module, "__file__", None) or "?"
            raise UserError(
                f"{package} has been imported from {at} before Étude could take its place; "
                "call etude.compat.install() before the first import of it"
            )


def command_of(module: str, words: Sequence[str]) -> Callable[[], int] | None:
    """Return what does the work of ``python -m module words…`` for a package that Étude serves, if it does that."""
    target, first = _tables_for(module).commands.get(module, ("", ()))
    return (lambda: int(resolve(target)([*first, *words]))) if target else None


def is_served(package: str) -> bool:
    """Return whether Étude answers to this package: it owns it, or it has stand-ins and the original is not there."""
    return package in packages() and (is_owned(package) or ownership.original(package) is None)


def is_owned(module: str) -> bool:
    """Return whether ``module`` is of an engine that Étude replaces, whether or not the original is installed."""
    engine = _tables_for(module).engine
    while module:
        if module in engine:
            return True
        module = module.rpartition(".")[0]
    return False


def served_names(module: str) -> Mapping[str, str] | None:
    """Return the names that ``module`` is served with; None where it is not served."""
    known = module in _tables_for(module).modules and (is_owned(module) or is_served(module.partition(".")[0]))
    return _names(module) if known else None


def served_modules() -> list[str]:
    return [name for module in dict.fromkeys(packages().values()) for name in _tables(module).modules]


def _answers(fullname: str) -> bool:
    """Return whether Étude answers to ``fullname``. What was imported first decides for the whole package."""
    package = fullname.partition(".")[0]
    imported = sys.modules.get(package)
    if imported is not None and not isinstance(imported, Served):
        return is_owned(fullname) and not is_owned(package)
    if is_owned(fullname):
        return imported is not None or not _gives_way(package)
    return imported is not None or ownership.original(package) is None


def _stands_in(fullname: str, path: Sequence[str] | None) -> bool:
    """Return whether Étude has a stand-in (``COMPILED`` in a dialect's names) for a module that was never built."""
    if path is None or fullname not in _tables_for(fullname).compiled:
        return False
    return importlib.machinery.PathFinder.find_spec(fullname, path) is None


def _gives_way(package: str) -> bool:
    """Return whether the original of an owned package is to be imported, because its user is of another generation."""
    overlay = _tables_for(package).overlays.get(package)
    return overlay is not None and hasattr(overlay, "gives_way") and bool(overlay.gives_way(package))


def _names(module: str) -> Mapping[str, str]:
    """Return the names of a served module: Étude's own, and those that an overlay finds on the disk."""
    tables = _tables_for(module)
    names = tables.modules.get(module, {})
    for overlay in tables.overlays.values():
        names = {**overlay.names_on_disk(module), **names}
    return names


def _from_disk(module: str) -> importlib.machinery.ModuleSpec | None:
    overlay = _tables_for(module).overlays.get(module.partition(".")[0])
    found: importlib.machinery.ModuleSpec | None = overlay.find_spec(module) if overlay is not None else None
    return found


class _Tables:
    """What one dialect answers to import names: the variables of its module ``names``."""

    def __init__(self, names: ModuleType | None) -> None:
        self.modules: dict[str, Mapping[str, str]] = dict(getattr(names, "MODULES", {}))
        self.out_of_scope: Mapping[str, str] = getattr(names, "OUT_OF_SCOPE", {})
        self.engine: Sequence[str] = getattr(names, "ENGINE", ())
        self.fallback: Mapping[str, str] = getattr(names, "FALLBACK", {})
        self.commands: Mapping[str, tuple[str, Sequence[str]]] = getattr(names, "COMMANDS", {})
        self.compiled: Sequence[str] = getattr(names, "COMPILED", ())
        #: Package → the module that finds those parts of it on the disk that Étude leaves to the original.
        self.overlays: dict[str, ModuleType] = {}
        if overlay := getattr(names, "OVERLAY", ""):
            packages = (*self.engine, *getattr(names, "CHANGED", ()))
            self.overlays = dict.fromkeys(packages, importlib.import_module(overlay))
        for name in list(self.modules):
            parent = name.rpartition(".")[0]
            # What the table has already brings its own parents.
            while parent and parent not in self.modules and not self._is_layer(parent):
                self.modules[parent] = {}
                parent = parent.rpartition(".")[0]

    def _is_layer(self, module: str) -> bool:
        return any(overlay.is_layer(module) for overlay in self.overlays.values())

    def reasons(self) -> dict[str, str]:
        """Return name → why it is not served."""
        found = dict(self.out_of_scope)
        for overlay in self.overlays.values():
            found |= overlay.missing()
        return found


_NO_TABLES = _Tables(None)


@cache
def _tables(names: str) -> _Tables:
    """Return the tables of a dialect by the name of its module ``names``."""
    return _Tables(importlib.import_module(names))


def _tables_for(module: str) -> _Tables:
    """Return the tables of the dialect that answers to the package of ``module``; empty ones where none does."""
    names = packages().get(module.partition(".")[0])
    return _tables(names) if names else _NO_TABLES


def _twin(module: str) -> str:
    """Return the module that has what the tables of ``module`` lack (torch's for OneFlow's); empty for none."""
    fallback = _tables_for(module).fallback
    if module in fallback:
        return fallback[module]
    package, dot, rest = module.partition(".")
    if package not in fallback:
        return ""
    twin = f"{fallback[package]}{dot}{rest}"
    try:
        return twin if importlib.util.find_spec(twin) is not None else ""
    except (ImportError, ValueError):
        return ""


def reason_against(module: str, name: str = "") -> str:
    """Return why a served package lacks ``name`` of ``module``; empty if it is misspelt or unknown."""
    full = f"{module}.{name}" if name else module
    reason = _out_of_scope(full)
    tables = _tables_for(full)
    slip = full not in tables.reasons() and nearest(name, list(tables.modules.get(module, ()))) is not None
    return "" if slip or not reason or ownership.is_users(full) else _refusal(full, reason)


def _refusal(name: str, reason: str) -> str:
    return f"{name} is out of Étude's scope: {reason}"


def _out_of_scope(name: str) -> str:
    reasons = _tables_for(name).reasons()
    while name:
        if name in reasons:
            return reasons[name]
        name = name.rpartition(".")[0]
    return ""
