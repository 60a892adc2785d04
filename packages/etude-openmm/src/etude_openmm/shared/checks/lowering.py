"""The base of both lowerings: makes specs with places, and collects findings about names and arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.dialects import imports
from etude.errors import Finding
from etude.errors.spelling import is_slip, nearest, suggest
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude.plan import Place, Spec
from etude_openmm.shared.project_names import owner_of, remedy
from etude_openmm.shared.reading.imported import imported_by
from etude_openmm.shared.reading.syntax import names_used
from etude_openmm.shared.registries.registry_base import registered_by_hand

#: Keys of a component's dict that are not arguments of it.
NOT_ARGUMENTS = ("type", "_scope_")
#: Kinds of specs that lowering itself compares with their classes.
_BOUND = ("hook", "optimizer", "update", "schedule", "sampler", "loop")


#: Packages that register nothing in the registries of OpenMMLab.
INSTALLED = {
    *sys.stdlib_module_names, "torch", "torchvision", "torchaudio", "numpy", "scipy", "sklearn", "PIL", "cv2", "einops",
    "pandas", "matplotlib", "tqdm", "yaml", "h5py", "lmdb", "safetensors",
}  # fmt: skip


class Lowering:
    """One pass over a tree; what is wrong gathers in ``findings``."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.findings: list[Finding] = []
        self._wrong: set[Place] = set()
        #: Paths of the dicts that :meth:`bind` compares with their classes.
        self.bound: set[Path] = set()
        self.imports = _imports(tree)
        self.folders = tuple(dict.fromkeys(os.path.dirname(file) for file in tree.files))
        #: Modules that are imported when the config runs: those it lists, and those whose classes it names.
        self.modules = tuple(dict.fromkeys([*self.imports, *self._named_modules()]))
        #: Whether the config imports modules whose sources cannot be found.
        self.has_unread_modules = any(scan.find_source(module, self.folders) is None for module in self.modules)
        self.registered = {**registered_by_hand(), **self._by_user()}

    # -- specs ---------------------------------------------------------------------------------------------------

    def spec(self, path: Path, kind: str, *, default: str = "", leave_out: Sequence[str] = ()) -> Spec:
        """Return the component at ``path``: its ``type`` (or ``default``) and its arguments, each with its place."""
        if kind in _BOUND:
            self.bound.add(path)
        value = self.tree.get(*path)
        values = value if isinstance(value, Mapping) else {"type": value} if isinstance(value, str) else {}
        left_out = (*NOT_ARGUMENTS, *leave_out)
        args = {str(key): item for key, item in values.items() if key not in left_out}
        return Spec(
            kind=kind,
            name=name_of(values.get("type", default)),
            args=args,
            at=self.place(*path),
            places={key: self.place(*path, key) for key in (*args, *(["type"] if "type" in values else []))},
        )

    def place(self, *path: str | int) -> Place:
        return self.tree.place(*path)

    # -- findings ------------------------------------------------------------------------------------------------

    def error(self, at: Place, message: str, hint: str = "") -> None:
        self._wrong.add(at)
        self._tell(Finding(str(at), message, hint))

    def warning(self, at: Place, message: str, hint: str = "") -> None:
        self._tell(Finding(str(at), message, hint, "warning"))

    def has_error(self, path: Path) -> bool:
        """Return whether there is an error about this key already; a second one would only confuse."""
        return self.tree.places.get(path) in self._wrong

    def _tell(self, finding: Finding) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    def bind(
        self,
        spec: Spec,
        known: Mapping[str, str],
        *,
        table: str = "",
        given: Iterable[str] = (),
        also: Iterable[str] = (),
        word: str = "",
        closed: bool = False,
    ) -> None:
        """Compare ``spec`` with the class that it names in ``known`` (name → ``module:attr``) or in your modules.

        ``given`` are arguments that the engine adds, ``also`` ones that are taken beside those of the
        signature; ``closed`` says that these are all, although the signature has ``**kwargs``.
        """
        target = self._target(spec, known, table, word or spec.kind)
        signature = scan.signature(target, folders=self.folders, known=cached) if target else None
        if signature is not None:
            self.compare(spec.place, spec.name, spec.args, signature, given=given, also=also, closed=closed)

    def compare(
        self,
        place: Callable[[str], Place],
        name: str,
        keys: Iterable[str],
        signature: scan.Signature,
        *,
        given: Iterable[str] = (),
        also: Iterable[str] = (),
        closed: bool = False,
        exact: bool = True,
        slips: bool = False,
    ) -> None:
        """Report keys that a class does not take, and those that it needs.

        ``exact`` says that it is built from these keys and those ``given``. Else its owner may add and remove some:
        then a wrong one is a warning, with ``slips`` only if it is misspelt.
        """
        keys, also = list(keys), tuple(also)
        takes = [p.key for p in signature.parameters if p.key not in given and p.word]
        is_open, meant = signature.open and not closed, set()
        for key in keys:
            if key in takes or key in also or key in given:
                continue
            near = nearest(key, [word for word in (*takes, *also) if word not in keys]) or nearest(key, (*takes, *also))
            slip = near is not None and is_slip(key, near)
            if (is_open or slips) and not slip:
                continue
            tell = self.error if exact and not is_open else self.warning
            if place(key) not in self._wrong:
                hint = f"did you mean {near!r}?" if near else suggest(key, (*takes, *also), otherwise=None)
                tell(place(key), f"{name} has no parameter {key!r}", hint if takes or also else "it takes none")
            meant |= {near} if near else set()
        for parameter in signature.parameters if exact and not is_open else ():
            if parameter.required and parameter.key in takes and parameter.key not in {*keys, *meant}:
                self.error(place(""), f"{name} needs the parameter {parameter.key!r}")

    def _target(self, spec: Spec, known: Mapping[str, str], table: str, word: str) -> str:
        name = spec.name.rpartition(".")[2] if spec.name.partition(".")[0].startswith("mm") else spec.name
        if name in known:
            return known[name]
        if (table, name) in self.registered:
            return self.registered[table, name]
        if not spec.name or "." in spec.name:
            module, _, attribute = spec.name.rpartition(".")
            return f"{module}:{attribute}" if scan.find_source(module, self.folders) else ""
        near = nearest(spec.name, [*known, *(entry for where, entry in self.registered if where == table)])
        is_own = self.has_unread_modules and not owner_of(spec.name)
        if near and is_own and not is_slip(spec.name.casefold(), near.casefold()):
            return ""  # one of those modules may have it
        owned = near or owner_of(spec.name)
        if owned or not self.modules:
            unknown = "list the module that defines it under `custom_imports`"
            hint = remedy(spec.name, [near or ""]) if owned else unknown
            named = spec.place("type")
            at = named if named.file != spec.at.file else spec.at  # of an override, or of a child
            self.error(at, f"no {word} is called {spec.name!r}", hint)
        return ""

    def unknown_keys(self, known: Sequence[str], former: Mapping[str, str] | None = None) -> None:
        """Warn about top-level keys that nothing reads: neither known words, nor variables that the config itself uses.

        ``former`` says what is read instead of the keys of an older generation.
        """
        used = names_used(self.tree.files.values())
        for key in self.tree.values:
            if key in known or not isinstance(key, str) or key.startswith("_") or key in used:
                continue
            near = nearest(key, known)
            hint = (former or {}).get(key, "") or (f"did you mean {near!r}?" if near else "")
            self.warning(self.place(key), f"unknown key {key}: nothing reads it", hint)

    # -- the user's own modules ----------------------------------------------------------------------------------

    def sources(self) -> Iterator[scan.Source]:
        """Yield the files of user-defined modules, and those beside them that they import."""
        for module in self.modules:
            source = scan.find_source(module, self.folders)
            if source is not None:
                yield from scan.reached(module, source.file, folders=self.folders)

    def _by_user(self) -> dict[tuple[str, str], str]:
        """Return what the user's modules register: (table, name) → ``module:attr``."""
        found: dict[tuple[str, str], str] = {}
        for source in self.sources():
            found.update({(entry.table, entry.name): entry.target for entry in scan.registered(source)})
        return found

    def _named_modules(self) -> Iterator[str]:
        for entry in imported_by(self.tree.files):
            top = entry.module.partition(".")[0]
            if top not in INSTALLED and not imports.is_served(top) and scan.find_source(entry.module, self.folders):
                yield entry.module


def name_of(value: Any) -> str:
    """Return a component's name: text, or the dotted path of a class."""
    if isinstance(value, str):
        return value
    return f"{value.__module__}.{value.__qualname__}" if isinstance(value, type) else str(value or "")


def _imports(tree: Tree) -> tuple[str, ...]:
    wanted = tree.get("custom_imports", "imports")
    names = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    return tuple(name for name in names if isinstance(name, str))


def number(low: Lowering, path: Path, default: Any, *, least: int = 0) -> Any:
    """Return a whole number at ``path``; anything else is a finding and gives ``default``."""
    value = low.tree.get(*path, default=default)
    if value is default or (isinstance(value, int) and not isinstance(value, bool) and value >= least):
        return value
    text = f"{dotted(path)} must be a whole number of at least {least}, not {value!r}"
    low.error(low.place(*path), text, f"write {value} without quotes" if str(value).isdigit() else "")
    return default
