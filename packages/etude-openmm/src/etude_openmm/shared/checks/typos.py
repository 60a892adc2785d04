"""Finds misspelt keys and names: a word that is one letter away from one that belongs there.

Configs of this world may hold user-defined variables and keys that nothing reads, so an unknown word alone is no
mistake. One that is a single slip away from a word that belongs there, and is missing, surely is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from etude.config.files import display
from etude.config.imports import find_imports
from etude.config.tree import Path, dotted
from etude.errors import Finding
from etude.errors.spelling import is_slip, nearest
from etude.fast_dataclass import field, record, replace
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude.plan import Place
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.checks.project_sources import scoped
from etude_openmm.shared.project_names import owner_of
from etude_openmm.shared.reading.syntax import names_used

#: Keys that the dict of any component may have beside the arguments of its class.
_ALWAYS = (
    "type", "_scope_", "_delete_", "init_cfg", "priority", "constructor", "paramwise_cfg", "dataset", "datasets",
    "pipeline", "train_cfg", "test_cfg", "data_preprocessor", "times",
)  # fmt: skip


#: Keys whose dict is always a part that a registry holds.
_PARTS = (
    "backbone", "neck", "head", "bbox_head", "mask_head", "rpn_head", "roi_head", "decode_head", "auxiliary_head",
    "detector", "keypoint_head", "cls_head", "data_preprocessor",
)  # fmt: skip


@record(eq=False)
class Words:
    """The words that a dialect knows: its top-level keys, and its components (name → ``module:attr``).

    ``keys`` and ``defaults`` map the path of a dict (``*`` stands for any key or index) to the keys that belong there,
    and to the component that it is without a ``type``.
    """

    top: Sequence[str]
    names: Mapping[str, str]
    #: Import name → attribute → ``module:attr``, to follow the bases of user-defined classes.
    served: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keys: Mapping[tuple[str, ...], Sequence[str]] = field(default_factory=dict)
    defaults: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    #: Keys of ``top`` that are variables by custom: others may be called nearly so.
    variables: Collection[str] = ()
    #: Names that an installed project has. They are right, and are not suggested: many are one letter apart (BN, LN).
    others: Collection[str] = ()

    def known(self, target: str) -> scan.Signature | None:
        """Return the signature of a base class, which may have the import name of an original."""
        module, _, attribute = target.partition(":")
        ours = self.served.get(module, {}).get(attribute, "")
        return scan.signature(ours, known=cached) if ":" in ours else cached(target)


def report_typos(low: Lowering, words: Words) -> None:
    """Add a finding to ``low`` for every misspelt word that it does not have yet."""
    _Slips(low, words).tell()


class _Slips:
    def __init__(self, low: Lowering, words: Words) -> None:
        self.low, self.words = low, words
        self.names = {**words.names, **{name: target for (_, name), target in low.registered.items()}}

    def tell(self) -> None:
        lost = self._imports()
        used = names_used(self.low.tree.files.values())
        leave = {*used, *self.words.variables}
        self._keys((), self.low.tree.values, [key for key in self.words.top if key not in leave], leave=leave)
        for path, value in self.low.tree.walk():
            if isinstance(value, Mapping) and path[0] in self.words.top:
                self._keys(path, value, self._belong(path, value))
                if not lost:
                    self._name(path, value)

    def _belong(self, path: Path, value: Mapping[Any, Any]) -> list[str]:
        """Return the words that belong into the dict at ``path``."""
        name = value.get("type", _at(self.words.defaults, path))
        found = [*(_at(self.words.keys, path) or ()), *(_ALWAYS if name else ("type",))]
        target = self.names.get(_bare(name)) if isinstance(name, str) else None
        signature = scan.signature(target, folders=self.low.folders, known=self.words.known) if target else None
        return [*found, *(parameter.key for parameter in signature.parameters)] if signature else found

    def _keys(self, path: Path, value: Mapping[Any, Any], words: Iterable[str], leave: Iterable[str] = ()) -> None:
        missing = [word for word in words if path or word not in value]
        known = {*words, *leave}
        for key in value:
            if isinstance(key, str) and key not in known and not key.startswith("_"):
                meant = _slip_of(key, missing)
                if meant and "custom_keys" in path:  # the whole rule goes into the group, so nothing fails
                    text = f"unknown key {dotted((*path, key))}"
                    self.low.warning(self.low.place(*path, key), text, f"did you mean {meant!r}?")
                elif meant:
                    self._error((*path, key), key, f"unknown key {dotted((*path, key))}", meant)

    def _name(self, path: Path, value: Mapping[Any, Any]) -> None:
        name = value.get("type")
        known = isinstance(name, str) and (_bare(name) in self.names or _bare(name) in self.words.others)
        if not isinstance(name, str) or not name or known or owner_of(name):
            return
        scope, dot, bare = name.rpartition(".")
        names = scoped(scope) if dot else self.names
        if not dot and any(bare in scoped(scope) for scope in self._scopes(path)):
            return
        meant = _slip_of(bare, names) if bare not in names else None
        if meant and self._may_be_a_word_of_its_own(path, bare, meant):
            self.low.warning(self.low.place(*path, "type"), f"nothing is called {name!r}", f"did you mean {meant!r}?")
        elif meant:
            self._error((*path, "type"), name, f"{self._no(meant, path)} is called {name!r}", f"{scope}{dot}{meant}")

    def _scopes(self, path: Path) -> set[str]:
        """Return the scopes that a dict above names for its parts, as ``_scope_`` or before its own ``type``."""
        above = [self.low.tree.get(*path[:end]) for end in range(1, len(path) + 1)]
        kinds = [str(one.get("type", "")) for one in above if isinstance(one, Mapping)]
        written = [str(one["_scope_"]) for one in above if isinstance(one, Mapping) and "_scope_" in one]
        return {*written, *(kind.partition(".")[0] for kind in kinds if kind.count(".") == 1)}

    def _may_be_a_word_of_its_own(self, path: Path, bare: str, meant: str) -> bool:
        """Return whether ``type`` may be an argument that no registry is asked for.

        Models and hooks have such: ``init_cfg=dict(type='normal')``, ``slow_pathway=dict(type='resnet3d')``, and
        ``vis_kwargs_list=dict(type='GAN')`` of a hook.
        """
        if path[0] in ("custom_hooks", "default_hooks"):
            return len(path) > 2
        is_part = path == ("model",) or path[-1] in _PARTS or "pipeline" in path
        return path[0] == "model" and not is_part and bare.islower() and bare == meant.lower()

    def _no(self, meant: str, path: Path) -> str:
        """Return ``no transform`` and the like: the kind of what was probably meant, by the table that it is in."""
        table = next((table for table, name in self.low.registered if name == meant), "")
        kind = "transform" if "pipeline" in path else table.lower().replace("_", " ").removesuffix("s")
        kind = "loss" if table == "LOSSES" else kind
        return f"no {kind}" if kind else "nothing"

    def _imports(self) -> bool:
        """Report modules that cannot be found, unless the config allows that. Return whether there are any, because
        names that look misspelt may be theirs."""
        forgiven = self.low.tree.get("custom_imports", "allow_failed_imports", default=False)
        places = [self.low.place("custom_imports", "imports", index) for index in range(len(self.low.imports))]
        missing = find_imports(self.low.imports, list(self.low.tree.files), places)[1]
        for finding in missing:
            if finding.hint.startswith("did you mean") or not forgiven:
                self.low.findings.append(replace(finding, message=f"custom_{finding.message}"))
        return bool(missing)

    def _error(self, path: Path, word: str, message: str, meant: str) -> None:
        """Add an error, unless there is one about the word. It replaces a warning about the word."""
        at, hint = str(self.low.place(*path)), f"did you mean {meant!r}?"
        about = [f for f in self.low.findings if f.at == at and (repr(word) in f.message or dotted(path) in f.message)]
        if any(finding.severity == "error" for finding in about):
            return
        self.low.findings[:] = [f for f in self.low.findings if f not in about or f.severity == "error"]
        self.low.findings.append(Finding(at, message, hint))


def _slip_of(word: str, words: Iterable[str]) -> str | None:
    near = [known for known in words if len(known) > 1 and is_slip(word.casefold(), known.casefold())]
    return nearest(word, near) if near else None


def _bare(name: str) -> str:
    """Return ``ResNet`` for ``mmcls.ResNet`` and ``mmcls.models.ResNet``."""
    return name.rpartition(".")[2] if name.startswith("mm") else name


def _at(table: Mapping[tuple[str, ...], Any], path: Path) -> Any:
    for pattern, found in table.items():
        if len(pattern) == len(path) and all(p in ("*", str(part)) for p, part in zip(pattern, path, strict=True)):
            return found
    return None


def report_methods(low: Lowering, target: str, base: str, former: Mapping[str, str]) -> None:
    """Warn about misspelt methods of the hook ``target``.

    ``base`` is the class with the points, ``former`` maps names of other versions to them.
    """
    if target not in low.registered.values() and target.partition(":")[0] not in low.modules:
        return
    found = scan.class_of(target, folders=low.folders)
    if found is not None:
        source, node = found
        for method, meant in _misspelt(node, _points(base), former):
            text = f"{node.name}.{method.name}: a run calls no such method of a hook"
            low.warning(Place(display(source.file), method.lineno), text, f"did you mean {meant!r}?")


def _points(base: str) -> list[str]:
    found = scan.class_of(base)
    return [item.name for item in found[1].body if isinstance(item, ast.FunctionDef)] if found else []


def _misspelt(node: ast.ClassDef, points: list[str], former: Mapping[str, str]) -> list[tuple[ast.FunctionDef, str]]:
    """Return misspelt methods and what they mean. A method that the class itself calls is none."""
    text, found = ast.unparse(node), []
    for method in [item for item in node.body if isinstance(item, ast.FunctionDef)]:
        called = re.search(rf"\.{method.name}\b", text) is not None
        if method.name in points or method.name.startswith("_") or called:
            continue
        near = [point for point in points if not point.startswith("_") and is_slip(method.name, point)]
        meant = nearest(method.name, near) or former.get(method.name)
        if meant:
            found.append((method, meant))
    return found
