"""Pieces of JSON Schema for configs that name classes by ``type``: what a class takes, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.config.conform import Want, declared
from etude.config.tree import Tree
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.checks.typos import Words
from etude.inspection import signatures as scan
from etude.inspection.index import kept

DIALECT = "https://json-schema.org/draft/2020-12/schema"
INT, NUMBER, TEXT, FLAG, DICT = (
    {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "boolean"}, {"type": "object"},
)  # fmt: skip
COUNT = {"type": "integer", "minimum": 0}
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


def or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [dict(schema), {"type": "null"}]}


def one_or_many(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [dict(one), {"type": "array", "items": dict(one)}]}


def mapping(properties: Mapping[str, Any], *, rest: Any = False, required: Sequence[str] = ()) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": rest}
    return {**made, "required": list(required)} if required else made


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
        return or_null(made) if made and {"type": "null"} not in made.get("anyOf", ()) else made
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
