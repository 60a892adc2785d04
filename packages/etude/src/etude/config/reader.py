"""Reads the keys of a config section one by one, and reports unknown keys and wrong values, with suggestions, all at
once.

A lowering takes the keys that it knows. Every key that was not taken is a mistake, reported with the nearest key:

>>> from etude.config.tree import Tree
>>> from etude.plan import Place
>>> tree = Tree({"train": {"epochs": "3", "sede": 1}}, {("train", "epochs"): Place("a.yaml", 2)})
>>> fields = Fields(tree, ("train",))
>>> fields.take("epochs", int, default=None), fields.take("seed", int, default=0)
(None, 0)
>>> fields.done()
>>> for finding in fields.findings: print(finding)
a.yaml:2: train.epochs must be a whole number, not the string '3'; write 3 without quotes
unknown key train.sede; did you mean 'seed'?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from etude.config.conform import Misfit, conform
from etude.config.tree import Path, Tree, dotted
from etude.errors import ConfigError, Finding
from etude.errors.spelling import elsewhere, meaning, nearest, suggest
from etude.fast_dataclass import record
from etude.plan import PRIORITIES, Place, Spec
from etude.units import Amount, parse_written

T = TypeVar("T")

#: Arguments that hold a component of another kind, by the argument's name (its plural too).
ARGUMENT_KINDS = {
    "model": "model", "backbone": "model", "neck": "model", "head": "model", "module": "model", "network": "model",
    "loss": "loss", "dataset": "dataset", "transform": "transform", "sampler": "sampler", "collate": "collate function",
    "optimizer": "optimizer", "schedule": "schedule", "curve": "schedule", "loop": "loop", "update": "update",
    "hook": "hook", "metric": "metric", "writer": "writer",
}  # fmt: skip
#: Arguments where a bare name means the component of that name.
_NAMED_BY_STRING = {"transform", "transforms"}


@record
class Asked:
    """A key that was read: its place, and its allowed values. ``*`` as key: the arguments of a component."""

    path: Path
    key: str
    annotation: str = "Any"
    default: Any = None
    #: The kind of component that is due; ``many`` allows a list of them.
    kind: str = ""
    many: bool = False


_watchers: list[list[Asked]] = []


@contextmanager
def watch() -> Iterator[list[Asked]]:
    """Collect the keys that are taken inside the block. A lowering that reads a sample shows which keys it knows."""
    asked: list[Asked] = []
    _watchers.append(asked)
    try:
        yield asked
    finally:
        _watchers.remove(asked)


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Any = _Required()


class Fields:
    """The keys of the mapping at ``path``. Mistakes go to ``findings``, which sections of one config share.

    A wrong value yields the default (None if there is none), so that reading continues with the next key.
    A lowering raises all findings as one error at its end.
    """

    def __init__(self, tree: Tree, path: Path = (), findings: list[Finding] | None = None) -> None:
        self.tree, self.path = tree, path
        self.findings: list[Finding] = [] if findings is None else findings
        self._asked: dict[str, None] = {}
        value = tree.get(*path) if path else tree.values
        self.present = value is not None
        if value is not None and not isinstance(value, Mapping):
            self.error(f"{dotted(path)} must be a mapping, not {value!r}")
            value = {}
        self.values: dict[Any, Any] = dict(value or {})

    # -- asking --------------------------------------------------------------------------------------------------

    def __contains__(self, key: object) -> bool:
        return key in self.values

    def place(self, key: str | int | None = None) -> Place:
        """Return where ``key`` (or the section itself) was written."""
        return self.tree.place(*self.path) if key is None else self.tree.place(*self.path, key)

    def name(self, key: str | int) -> str:
        """Return the full name of ``key``: ``optim.lr``."""
        return dotted((*self.path, key))

    def error(self, message: str, *, key: str | int | None = None, hint: str = "", severity: str = "error") -> None:
        self.findings.append(Finding(str(self.place(key)), message, hint, severity))

    # -- taking --------------------------------------------------------------------------------------------------

    @overload
    def take(self, key: str, kind: type[T], *, default: None, choices: Iterable[T] = ()) -> T | None: ...
    @overload
    def take(self, key: str, kind: type[T], *, default: T = ..., choices: Iterable[T] = ()) -> T: ...
    @overload
    def take(self, key: str, kind: str = "Any", *, default: Any = ..., choices: Iterable[Any] = ()) -> Any: ...
    def take(self, key: str, kind: type | str = "Any", *, default: Any = REQUIRED, choices: Iterable[Any] = ()) -> Any:
        """Return the value of ``key``, checked against a type or an annotation's text (``"float | list[float]"``).
        Without a ``default`` the key is required. ``null`` means the default if that is None."""
        options = tuple(choices)
        annotation = f"Literal[{', '.join(map(repr, options))}]" if options else getattr(kind, "__name__", str(kind))
        self._note(key, annotation, default)
        if key not in self.values:
            return self._absent(key, default)
        value = self.values[key]
        if value is None and default is None:
            return None
        try:
            return conform(value, annotation)
        except Misfit as misfit:
            self.error(f"{self.name(key)} must be {misfit}", key=key, hint=misfit.hint)
            return None if default is REQUIRED else default

    def take_amount(self, key: str, *, default: Any = REQUIRED, unit: str = "step") -> Amount | None:
        """Return ``1ep``, ``500step`` or ``2h``; None if the default or the value is null. ``unit`` is the usual one,
        for advice."""
        self._note(key, "Amount", default)
        value = self.values.get(key) if key in self.values else self._absent(key, default)
        if value is None or isinstance(value, Amount):
            return value
        try:
            return parse_written(value, unit=unit)
        except ConfigError as error:
            first = error.findings[0]
            self.error(f"{self.name(key)}: {first.message}", key=key, hint=first.hint or "write 1ep, 500step or 2h")
            return None

    def take_positive(
        self, key: str, kind: type = int, *, default: Any = REQUIRED, zero: bool = False, most: int | None = None
    ) -> Any:
        """Return a number above zero (or from zero, with ``zero``), ``most`` at most."""
        value: Any = self.take(key, kind, default=default)
        if most is not None and isinstance(value, int | float) and value > most:
            self.error(f"{self.name(key)} must be at most {most}, not {value}", key=key)
            return None if default is REQUIRED else default
        if isinstance(value, int | float) and (value < 0 or (value == 0 and not zero)):
            self.error(f"{self.name(key)} must be {'zero or more' if zero else 'more than zero'}, not {value}", key=key)
            return None if default is REQUIRED else default
        return value

    def take_list(self, key: str) -> list[Path]:
        """Return the paths of the items of ``key``; a single item is a list of one, an absent key an empty list."""
        self._note(key, "list", None)
        value = self.values.get(key)
        if value is None:
            return []
        if isinstance(value, list | tuple):
            return [(*self.path, key, index) for index in range(len(value))]
        return [(*self.path, key)]

    def take_priority(self, *, default: int = 50) -> int:
        """Return ``priority``: a number from 0 to 100, or one of the words ``HIGHEST`` … ``LOWEST``."""
        value = self.take("priority", "int | str", default=default)
        if isinstance(value, str):
            if value.upper() not in PRIORITIES:
                hint = suggest(value, PRIORITIES)
                self.error(f"{self.name('priority')}: no priority {value!r}", key="priority", hint=hint)
            return PRIORITIES.get(value.upper(), default)
        return int(value)

    def section(self, key: str) -> Fields:
        """Return the section below ``key``; empty (and not ``present``) if the config does not have it."""
        self._note(key, "dict", None)
        return Fields(self.tree, (*self.path, key), self.findings)

    def take_spec(self, key: str, kind: str, *, default: Any = REQUIRED, hint: str = "") -> Spec | None:
        """Return the component at ``key``: a name, or a mapping with ``type`` and its arguments. ``hint`` says what to
        write where it is missing."""
        self._note(key, "Any", default, kind=kind)
        value = self.values.get(key) if key in self.values else self._absent(key, default, hint)
        return None if value is None else spec_at(self.tree, (*self.path, key), kind, self.findings)

    def take_specs(self, key: str, kind: str) -> tuple[Spec, ...]:
        """Return the components in the list at ``key``; a single one is a list of one."""
        found = [spec_at(self.tree, path, kind, self.findings) for path in self.take_list(key)]
        self._note(key, "Any", None, kind=kind, many=True)
        return tuple(spec for spec in found if spec is not None)

    # -- what is left --------------------------------------------------------------------------------------------

    def rest(self) -> dict[str, Any]:
        """Return every key that was not taken, as arguments of a component (components inside become specs)."""
        self._note("*", "Any", None)
        left = [key for key in self.values if key not in self._asked]
        self._asked.update(dict.fromkeys(left))
        return {key: _argument(self.tree, (*self.path, key), self.findings) for key in left}

    def rest_spec(self, kind: str) -> Spec | None:
        """Return this section as a component: its ``type``, and every key that was not taken as its arguments."""
        name = self._type_name(self.take("type", str, default=None))
        self._note("*", "Any", None, kind=kind)
        extra_keys = tuple(key for key in self._asked if key != "type")
        meant = None if "type" in self.values else self._misspelt_type()
        places = {key: self.place(key) for key in self.values if key not in self._asked}
        args = self.rest()
        if meant is not None:
            self.error(f"unknown key {self.name(meant)}", key=meant, hint="did you mean 'type'?")
        elif name is None and "type" not in self.values:
            self.error(f"{dotted(self.path)} has no `type`", hint=f"which {kind}?")
        if name is None:
            return None
        return Spec(kind=kind, name=name, args=args, at=self.place("type"), places=places, extra_keys=extra_keys)

    def _misspelt_type(self) -> str | None:
        """Return the key that was probably meant to be ``type``, if that is missing."""
        left = [str(key) for key, value in self.values.items() if key not in self._asked and isinstance(value, str)]
        meant = nearest("type", left)
        self._asked.update({meant: None} if meant else {})
        return meant

    def _type_name(self, given: Any) -> str | None:
        """Return the name of a component. A Python config may give the class itself, which becomes its dotted path."""
        if given is None or isinstance(given, str):
            return given
        module, name = getattr(given, "__module__", ""), getattr(given, "__qualname__", "")
        if not callable(given) or not module or "<locals>" in name or module == "__etude_config__":
            hint = "put it into its own module, and name that under `imports`"
            self.error(f"{self.name('type')}: {given!r} cannot be found again by its name", key="type", hint=hint)
            return None
        return f"{module}.{name}"

    def done(self, known: Iterable[str] = ()) -> None:
        """Report every key that was not taken. ``known`` adds names that are allowed here, too."""
        right = [*self._asked, *known]
        for key in self.values:
            if key not in right:
                self.error(f"unknown key {self.name(key)}", key=key, hint=self._unknown_hint(str(key), right))

    def _unknown_hint(self, key: str, right: list[str]) -> str:
        other = elsewhere(key)
        if other and meaning(key, right) is None and other != self.name(key):
            return f"write {other}"
        if not self.path and self.place(key).file.endswith(".py") and nearest(key, right) is None:
            return f"call it _{key} if it is your own variable"
        return suggest(key, right)

    def _note(self, key: str, annotation: str, default: Any, *, kind: str = "", many: bool = False) -> None:
        """Remember that ``key`` was asked for, for :meth:`done` and for who is watching."""
        if key != "*":
            self._asked[key] = None
        for watcher in _watchers:
            watcher.append(Asked(self.path, key, annotation, default, kind, many))

    def _absent(self, key: str, default: Any, hint: str = "") -> Any:
        if default is not REQUIRED:
            return default
        what = self.name(key) if self.path else f"the section `{key}`"
        self.error(f"{what} is missing", hint=hint)
        return None


def spec_at(tree: Tree, path: Path, kind: str, findings: list[Finding]) -> Spec | None:
    """Return the component at ``path``: ``Name`` or ``{type: Name, …}``; None (and a finding) for anything else."""
    value = tree.get(*path)
    if isinstance(value, Spec):
        return value
    if isinstance(value, str):
        return Spec(kind=kind, name=value, at=tree.place(*path))
    if isinstance(value, Mapping):
        return Fields(tree, path, findings).rest_spec(kind)
    findings.append(
        Finding(str(tree.place(*path)), f"{dotted(path)} must be a {kind}: its name, or a mapping with `type`")
    )
    return None


def _argument(tree: Tree, path: Path, findings: list[Finding], kind: str = "") -> Any:
    """Return an argument with every component inside it as a spec."""
    value, key = tree.get(*path), path[-1]
    if isinstance(key, str):
        kind = ARGUMENT_KINDS.get(key) or ARGUMENT_KINDS.get(key.removesuffix("s")) or kind
    if isinstance(value, Mapping):
        if "type" in value or (path[-1] in ARGUMENT_KINDS and nearest("type", [str(name) for name in value])):
            return spec_at(tree, path, kind, findings)
        return {name: _argument(tree, (*path, name), findings, kind) for name in value}
    if isinstance(value, list | tuple):
        return type(value)(_argument(tree, (*path, index), findings, kind) for index in range(len(value)))
    if isinstance(value, str) and any(part in _NAMED_BY_STRING for part in path[-2:]):
        return spec_at(tree, path, kind, findings)
    return value
