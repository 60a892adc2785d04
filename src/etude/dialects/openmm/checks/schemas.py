"""Pieces of JSON Schema for configs that name classes by ``type``: what a class takes, read from its source."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.config.conform import Want, declared
from etude.config.tree import Tree
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.checks.typos import Words
from etude.inspection import signatures as scan
from etude.inspection.index import kept

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT, FLAG, DICT = {"type": "string"}, {"type": "boolean"}, {"type": "object"}
_NULL = {"type": "null"}
#: Shapes that every table of keys knows.
_USUAL: Mapping[str, Any] = {
    "TEXT": TEXT, "FLAG": FLAG, "DICT": DICT, "NULL": _NULL, "INT": {"type": "integer"}, "NUMBER": {"type": "number"},
    "COUNT": {"type": "integer", "minimum": 0}, "POSITIVE": {"type": "integer", "minimum": 1},
}  # fmt: skip
_PLAIN = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "none": "null"}
#: Types that no file can write; the rest of a union says what is written instead.
_NOT_WRITTEN = ("Tensor", "torch.Tensor", "torch.dtype", "Path", "Priority")


@dataclass(frozen=True)
class Own:
    """What the modules of a config register, read from their sources: (table, name) → ``module:attr``."""

    registered: Mapping[tuple[str, str], str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    known: scan.Known = kept

    @classmethod
    def of(cls, tree: Tree | None, words: Words, project: Mapping[tuple[str, str], str] | None = None) -> Own:
        """Read the modules of ``tree``; ``project`` is what its installed project registers."""
        if tree is None:
            return cls()
        low = Lowering(tree)
        return cls({**(project or {}), **low.registered}, low.folders, words.known)

    def table(self, name: str) -> dict[str, str]:
        return {entry: target for (table, entry), target in self.registered.items() if table == name}

    def tables(self) -> list[str]:
        return sorted({table for table, _ in self.registered})

    def signature(self, target: str) -> scan.Signature | None:
        return scan.signature(target, folders=self.folders, known=self.known)


class KeyTable:
    """The keys of a config language, from its ``keys.json``: what stands there, and a line about it.

    ``keys`` maps a key to a shape and a line, ``shapes`` gives shapes a name. A shape is JSON Schema, or short for it::

        "TEXT"  "TEXT?"  "TEXT*"         a named shape; or null; one of it or a list
        "@HOOKS"                         a component of that registry
        {"fields": {"seed": "INT?"}, "rest": true, "required": ["seed"]}     a dict with these keys
        {"each": "INT"}  {"list": "INT"}  {"any": ["INT", "TEXT"]}           a dict or a list of those; one of several
    """

    def __init__(self, file: Path) -> None:
        self.read: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))

    def names(self) -> tuple[str, ...]:
        """Return the top-level keys."""
        return tuple(self.read["keys"])

    def keys(self, others: Mapping[str, Any] | None = None) -> dict[str, tuple[dict[str, Any], str]]:
        """Return key → JSON Schema and line; ``others`` are shapes that are read from the sources of classes."""
        return {key: (self.schema(shape, others), text) for key, (shape, text) in self.read["keys"].items()}

    def schemas(self, section: str) -> dict[str, dict[str, Any]]:
        """Return name → JSON Schema of another section of the file."""
        return {name: self.schema(shape) for name, shape in self.read[section].items()}

    def fields(self, *path: str) -> tuple[str, ...]:
        """Return the names of the fields at ``path``: of a key or of a named shape, or below."""
        first, *rest = path
        found = self.schema(self.read["keys"][first][0] if first in self.read["keys"] else first)
        for name in rest:
            found = _object(found)["properties"][name]
        return tuple(_object(found)["properties"])

    def schema(self, shape: Any, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON Schema that ``shape`` is short for."""
        if isinstance(shape, str):
            return self._named(shape, others or {})
        made = {key: value for key, value in shape.items() if key not in _SHORT}
        if "fields" in shape:
            rest = shape.get("rest", False)
            rest = rest if isinstance(rest, bool) else self.schema(rest, others)
            fields = {name: self.schema(one, others) for name, one in shape["fields"].items()}
            return {"type": "object", "properties": fields, "additionalProperties": rest, **made}
        if "each" in shape:
            return {"type": "object", "additionalProperties": self.schema(shape["each"], others), **made}
        if "list" in shape:
            return {"type": "array", "items": self.schema(shape["list"], others), **made}
        return {"anyOf": [self.schema(one, others) for one in shape["any"]]} if "any" in shape else made

    def _named(self, name: str, others: Mapping[str, Any]) -> dict[str, Any]:
        if name.endswith("?"):
            return {"anyOf": [self._named(name[:-1], others), _NULL]}
        if name.endswith("*"):
            one = self._named(name[:-1], others)
            return {"anyOf": [one, {"type": "array", "items": one}]}
        if name.startswith("@"):
            return {"$ref": f"#/$defs/{name[1:]}"}
        if name in self.read["shapes"]:
            return self.schema(self.read["shapes"][name], others)
        return dict(_USUAL[name] if name in _USUAL else others.get(name, {}))


_SHORT = ("fields", "rest", "each", "list", "any")


def _object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The alternative of a schema that is an object with properties."""
    return next(one for one in schema.get("anyOf", [schema]) if "properties" in one)


def of_class(
    target: str,
    *,
    given: Sequence[str] = (),
    types: Mapping[str, Any] | None = None,
    own: Own | None = None,
) -> tuple[dict[str, Any], list[str], bool] | None:
    """Return what ``module:Class`` takes: argument → schema, the required ones, and whether it takes others too.

    ``given`` are arguments that a config does not write, ``types`` better schemas for some of them.
    """
    signature = (own or Own()).signature(target)
    if signature is None:
        return None
    taken = [parameter for parameter in signature.parameters if parameter.word and parameter.name not in given]
    schemas = {p.key: dict((types or {}).get(p.key) or of_parameter(p)) for p in taken}
    return schemas, [p.key for p in taken if p.required], signature.open


def of_parameter(parameter: scan.Parameter) -> dict[str, Any]:
    """The type that a parameter declares, and its default where a file can write it; None where that is the default,
    whatever was declared."""
    made = of_annotation(parameter.annotation)
    if parameter.default == "None":
        return {"anyOf": [made, _NULL]} if made and _NULL not in made.get("anyOf", ()) else made
    try:
        default = ast.literal_eval(parameter.default or "None")
    except (ValueError, SyntaxError):
        return made
    return {**made, "default": default} if isinstance(default, bool | int | float | str) else made


def of_annotation(annotation: str) -> dict[str, Any]:
    return _of(declared(written(annotation)))


def written(annotation: str) -> str:
    """The part of an annotation that a file can write."""
    parts = [part.strip() for part in annotation.split("|")] if "[" not in annotation else [annotation]
    return " | ".join(part for part in parts if part not in _NOT_WRITTEN) or "Any"


def _of(want: Want) -> dict[str, Any]:
    kind = want[0]
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind == "literal":
        return {"enum": list(want[1:])}
    if kind in ("list", "tuple"):
        return {"type": "array"}
    if kind in ("dict", "object"):
        return dict(DICT)
    if kind == "union":
        parts = [_of(part) for part in want[1:]]
        return {"anyOf": parts} if all(parts) else {}
    return {}


def shown(target: str, given: Sequence[str] = (), own: Own | None = None) -> str:
    """``(interval=1, by_epoch=True) What the class does.``, for a list to read."""
    signature = (own or Own()).signature(target)
    if signature is None:
        return "(…)"
    taken = [p for p in signature.parameters if p.name not in given]
    words = ", ".join(p.key if p.default is None else f"{p.key}={p.default}" for p in taken)
    return f"({words}) {signature.doc}".rstrip()
