"""Compares every dict of a config with the class that it names, from sources alone. Nothing is imported.

This is the one checker of both generations; :class:`Rules` says what is different. It finds names that nothing
registers, arguments that a class does not take or lacks, and modules that cannot be found. An error is only what cannot
train: a wrong argument of a part that is built from exactly what the config writes, or a name there that is a letter
away from a right one. All else is a warning. Values are left to the classes, whose errors show the line of the config.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from etude.config.files import display
from etude.config.imports import find_imports
from etude.config.tree import Path, dotted
from etude.dialects import imports, ownership
from etude.errors.spelling import is_slip, nearest, suggest
from etude.fast_dataclass import field, record, replace
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude.plan import Place
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.checks.project_sources import scoped
from etude_openmm.shared.project_names import owner_of, remedy
from etude_openmm.shared.reading.imported import imported_by, missing_name

#: Keys that a part may have beside the arguments of its class: registries and owners of parts read them.
_ALWAYS = (
    "type", "_scope_", "_delete_", "init_cfg", "priority", "constructor", "paramwise_cfg", "train_cfg", "test_cfg",
    "data_preprocessor", "test_mode", "times",
)  # fmt: skip
_ENGINES = ("mmengine", "mmcv")
#: Names shorter than this are a letter apart by nature, as those of layers (BN, LN).
_LONG = 6


@record
class Role:
    """What stands at some path of a config: ``tables`` are patterns of the registries that are asked for its name."""

    tables: tuple[str, ...]
    #: Arguments that its builder adds.
    given: tuple[str, ...] = ()
    #: Whether it is built from exactly what the config writes.
    exact: bool = True
    #: What messages call it; without it, the registry.
    word: str = ""

    def holds(self, table: str) -> bool:
        """Return whether one of the patterns fits, and none of those that begin with ``!``."""
        fits = [pattern for pattern in self.tables if fnmatchcase(table, pattern.removeprefix("!"))]
        return bool(fits) and not any(pattern.startswith("!") for pattern in fits)


@record(eq=False)
class Rules:
    """The tables of a dialect: its top-level keys, its components (name → ``module:attr``), and what stands where.

    ``keys`` and ``defaults`` map the path of a dict (``*`` stands for any key or index) to the keys that belong there,
    and to the component that it is without a ``type``; ``roles`` map a regular expression for a path.
    """

    top: Sequence[str]
    names: Mapping[str, str]
    #: Import name → attribute → ``module:attr``, to follow the bases of user-defined classes.
    served: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keys: Mapping[tuple[str, ...], Sequence[str]] = field(default_factory=dict)
    defaults: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    roles: Mapping[str, Role] = field(default_factory=dict)
    #: Those of ``keys`` that are handed over as keyword arguments, so that no other key may stand there.
    closed: Collection[tuple[str, ...]] = ()
    #: Key whose text is a name in a registry, too, as ``type`` is.
    named: Mapping[str, Role] = field(default_factory=dict)
    #: Registry → name → ``module:attr`` of the engine's own entries.
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: Keys of ``top`` that are variables by custom: others may be called nearly so.
    variables: Collection[str] = ()
    #: Folders where sources are, too.
    folders: tuple[str, ...] = ()
    #: What to install, as the config's project is missing.
    lacking: str = ""
    #: What to do about a name that nobody registers, where it is not known whose it is.
    elsewhere: str = ""
    #: Parts whose builder ignores keys that it does not know.
    loose: Collection[str] = ()

    def known(self, target: str) -> scan.Signature | None:
        """Return the signature of a base class, which may have the import name of an original."""
        module, _, attribute = target.partition(":")
        ours = self.served.get(module, {}).get(attribute, "")
        return scan.signature(ours, known=cached) if ":" in ours else cached(target)


def check(low: Lowering, rules: Rules) -> None:
    """Add what is wrong with the dicts of a config to the findings of ``low``."""
    _Checker(low, rules).check()


class _Checker:
    def __init__(self, low: Lowering, rules: Rules) -> None:
        self.low, self.rules = low, rules
        self.folders = (*low.folders, *rules.folders)
        self.names = {**rules.names, **{name: target for (_, name), target in low.registered.items()}}
        self.lacking, self.elsewhere = rules.lacking, rules.elsewhere

    def check(self) -> None:
        self.is_whole = not _missing_imports(self.low)
        for path, value in self.low.tree.walk():
            if isinstance(value, str) and path[-1] in self.rules.named:
                self._target(path, value, self.rules.named[str(path[-1])])
            if not isinstance(value, Mapping) or path[0] not in self.rules.top:
                continue
            self._misspelt_type(path, value)
            name = value.get("type", _at(self.rules.defaults, path))
            role = self._role(path)
            target = self._target((*path, "type"), name, role) if isinstance(name, str) and name else ""
            self._keys(path, value, target)
            if target and path not in self.low.bound:
                self._arguments(path, value, str(name), target, role)

    # -- names ---------------------------------------------------------------------------------------------------

    def _target(self, where: Path, name: str, role: Role | None) -> str:
        """Return ``module:attr`` of what a config calls ``name``; empty if that is not known, which may be reported."""
        scope, _, last = name.rpartition(".")
        if scope and (found := scoped(scope.partition(".")[0]).get(last)):
            return found
        names, bare = self._names_for(role), last if _is_served(scope) else name
        if bare in names:
            # `mmdet.RandomCrop` is no other project's class of that name.
            is_foreign = bare != name and scope not in _ENGINES and ownership.has_marks(names[bare].partition(".")[0])
            return "" if is_foreign else names[bare]
        if scope and bare == name:
            return self._dotted(where, scope, last, role)
        if scope and (served := imports.served_names(scope)) and last in served:
            return served[last]
        is_reported = where[-1] == "type" and where[:-1] in self.low.bound
        if self.is_whole and not is_reported and not self.low.has_error(where):
            self._unknown_name(where, name, bare, role, names)
        return ""

    def _misspelt_type(self, path: Path, value: Mapping[Any, Any]) -> None:
        """Report a key that is nearly ``type`` and names a component, where there is no ``type``."""
        role = self._role(path)
        for key, name in value.items() if "type" not in value else ():
            is_name = isinstance(name, str) and name.rpartition(".")[2] in self._names_for(None)
            if is_name and isinstance(key, str) and is_slip(key, "type"):
                tell = self.low.error if role is not None and role.exact else self.low.warning
                tell(self.low.place(*path, key), f"unknown key {dotted((*path, key))}", "did you mean 'type'?")

    def _role(self, path: Path) -> Role | None:
        return next((one for way, one in self.rules.roles.items() if re.fullmatch(way, dotted(path))), None)

    def _names_for(self, role: Role | None) -> Mapping[str, str]:
        if role is None:
            return self.names
        own = {name: target for (table, name), target in self.low.registered.items() if role.holds(table)}
        engine = [entries for table, entries in self.rules.tables.items() if role.holds(table)]
        return {name: target for entries in engine for name, target in entries.items()} | own

    def _dotted(self, where: Path, module: str, attribute: str, role: Role | None) -> str:
        """Return the target of a class that is named by its module; report one that is not there."""
        is_scope = "." not in module and scan.has_module(f"{module}.registry", self.folders)
        if role is not None and not self.low.has_error(where):
            if is_scope:
                names = [f"{module}.{name}" for name in scoped(module)]
                self._unknown_name(
                    where, f"{module}.{attribute}", f"{module}.{attribute}", role, dict.fromkeys(names, "")
                )
                return ""
            imported = any(e.module == module and e.name in (attribute, "") for e in imported_by(self.low.tree.files))
            wrong = None if imported else missing_name(module, attribute, self.folders)
            if wrong:
                self.low.error(self.low.place(*where), *wrong)
        return "" if is_scope else f"{module}:{attribute}"

    def _unknown_name(self, where: Path, name: str, bare: str, role: Role | None, names: Mapping[str, str]) -> None:
        near = nearest(bare, [one for one in names if len(one) > 1 and is_slip(bare.casefold(), one.casefold())])
        at, text = self.low.place(*where), f"no {self._word(where, near, role)} is called {name!r}"
        if owner_of(bare) and role is not None:
            self.low.error(at, text, remedy(bare, []))
        elif near and role is not None and role.exact and not self.low.has_unread_modules:
            self.low.error(at, text, f"did you mean {near!r}?")
        elif near and (role is not None or len(bare) > _LONG or "init_cfg" in where):
            self.low.warning(at, text, f"did you mean {near!r}?")
        elif (
            self.lacking and role is not None and role.exact and where[-1] == "type" and not self.low.has_unread_modules
        ):
            self.low.error(at, text, self.lacking)
            self.lacking = ""  # once is enough: all of the project are unknown
        elif role is not None and role.exact and self.elsewhere and not self.low.has_unread_modules:
            self.low.warning(at, text, self.elsewhere)
            self.elsewhere = ""
        elif role is not None and role.exact and self.low.modules and not self.low.has_unread_modules and names:
            self.low.warning(at, text, suggest(bare, names))

    def _word(self, where: Path, near: str | None, role: Role | None) -> str:
        table = next((table for table, entry in self.low.registered if entry == near), "")
        pattern = role.tables[0].strip("*") if role is not None else table
        return (role.word if role is not None else "") or pattern.lower().replace("_", " ").removesuffix("s") or "part"

    # -- arguments -----------------------------------------------------------------------------------------------

    def _keys(self, path: Path, value: Mapping[Any, Any], target: str) -> None:
        """Report misspelt keys of a section, which has keys of its own beside the arguments of a class, or none."""
        own = _at(self.rules.keys, path)
        if own is None:
            return
        signature = self._signature(target) if target else None
        words = [*own, "type", *(parameter.key for parameter in (signature.parameters if signature else ()))]
        for key in value:
            if not isinstance(key, str) or key in words or key.startswith("_") or self.low.has_error((*path, key)):
                continue
            near = nearest(key, [word for word in words if word not in value and is_slip(key, word)])
            if near:
                # A rule of custom_keys goes into its group whole, so nothing fails.
                tell = self.low.warning if "custom_keys" in path else self.low.error
                tell(self.low.place(*path, key), f"unknown key {dotted((*path, key))}", f"did you mean {near!r}?")
            elif path in self.rules.closed:
                self.low.error(self.low.place(*path, key), f"unknown key {dotted((*path, key))}", suggest(key, own))

    def _arguments(self, path: Path, value: Mapping[Any, Any], name: str, target: str, role: Role | None) -> None:
        signature = self._signature(target)
        if signature is None or (role is None and not signature.parameters):
            return
        own = _at(self.rules.keys, path) or ()
        keys = [key for key in value if isinstance(key, str) and key not in _ALWAYS]
        exact = role is not None and role.exact and name not in self.rules.loose
        if not exact:
            taken = {parameter.key for parameter in signature.parameters}
            keys = [key for key in keys if key in taken or not self._is_for_owner(path, key)]
        self.low.compare(
            lambda key: self.low.place(*path, *([key] if key else [])),
            name.rpartition(".")[2] if _is_served(name) else name,
            keys,
            signature,
            also=own,
            given=(*_ALWAYS, *(role.given if role is not None else ())),
            exact=exact,
            slips=role is None,
        )

    def _is_for_owner(self, path: Path, key: str) -> bool:
        """Return whether a class that holds this part reads ``key`` itself, by its name, before it builds the part."""
        owners = (self.low.tree.get(*path[:end]) for end in range(len(path) - 1, 0, -1))
        names = [owner.get("type") for owner in owners if isinstance(owner, Mapping)]
        targets = [self.names[name] for name in names if isinstance(name, str) and name in self.names]
        return any(key in scan.words_in(target, folders=self.folders) for target in targets)

    def _signature(self, target: str) -> scan.Signature | None:
        return scan.signature(target, folders=self.folders, known=self.rules.known)


def _is_served(name: str) -> bool:
    """Return whether the first part of a dotted name is a scope or a package of this world."""
    top = name.partition(".")[0]
    return top.startswith("mm") and imports.is_served(top)


def _missing_imports(low: Lowering) -> bool:
    """Report modules that cannot be found, unless the config allows that. Return whether there are any, because names
    that look misspelt may be theirs."""
    forgiven = low.tree.get("custom_imports", "allow_failed_imports", default=False)
    places = [low.place("custom_imports", "imports", index) for index in range(len(low.imports))]
    missing = find_imports(low.imports, list(low.tree.files), places)[1]
    for finding in missing:
        if finding.hint.startswith("did you mean") or not forgiven:
            low.findings.append(replace(finding, message=f"custom_{finding.message}"))
    return bool(missing)


def _at(table: Mapping[tuple[str, ...], Any], path: Path) -> Any:
    for pattern, found in table.items():
        if len(pattern) == len(path) and all(p in ("*", str(part)) for p, part in zip(pattern, path, strict=True)):
            return found
    return None


def check_hook_methods(low: Lowering, target: str, base: str, former: Mapping[str, str]) -> None:
    """Warn about methods of the user's hook ``target`` that are almost called like a point: nothing calls them.

    ``base`` is the class with the points, ``former`` maps names of other versions to them.
    """
    is_own = target in low.registered.values() or target.partition(":")[0] in low.modules
    found = scan.class_of(target, folders=low.folders) if is_own else None
    usual = scan.class_of(base) if found is not None else None
    if found is None or usual is None:
        return
    points = [item.name for item in usual[1].body if isinstance(item, ast.FunctionDef)]
    source, node = found
    text = ast.unparse(node)
    for method in [item for item in node.body if isinstance(item, ast.FunctionDef)]:
        name = method.name
        if name in points or name.startswith("_") or re.search(rf"\.{name}\b", text):
            continue
        near = [point for point in points if not point.startswith("_") and is_slip(name, point)]
        if meant := nearest(name, near) or former.get(name):
            at = Place(display(source.file), method.lineno)
            low.warning(at, f"{node.name}.{name}: a run calls no such method of a hook", f"did you mean {meant!r}?")
