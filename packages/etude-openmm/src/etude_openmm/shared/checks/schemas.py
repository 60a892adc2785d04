"""Pieces of JSON Schema for configs that name classes by ``type``: what a class takes, read from its source."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import Any

from etude.config.conform import Want, declared
from etude.config.files import table_beside
from etude.config.tree import Tree
from etude.fast_dataclass import field, record
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude_openmm.shared.checks.checker import Rules
from etude_openmm.shared.checks.lowering import Lowering

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


@record
class Own:
    """What the modules of a config register, read from their sources: (table, name) → ``module:attr``."""

    registered: Mapping[tuple[str, str], str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    known: scan.Known = cached

    @classmethod
    def of(cls, tree: Tree | None, rules: Rules, project: Mapping[tuple[str, str], str] | None = None) -> Own:
        """Read the modules of ``tree``; ``project`` is what its installed project registers."""
        if tree is None:
            return cls()
        low = Lowering(tree)
        return cls({**(project or {}), **low.registered}, low.folders, rules.known)

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

    def __init__(self, module: str) -> None:
        """Read the table beside the file of a module."""
        self.read: dict[str, Any] = table_beside(module, "keys.json")

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
    """Return the alternative of a schema that is an object with properties."""
    return next(one for one in schema.get("anyOf", [schema]) if "properties" in one)


@record
class Components:
    """What a config may write in the dicts that name a class, and where the classes come from."""

    own: Own
    #: Arguments that no config writes.
    given: Collection[str]
    #: Better schemas for some arguments than their annotations have.
    types: Mapping[str, Any]
    #: Required arguments that a config may leave out, because the engine adds them.
    added: Collection[str] = ()
    #: Keys that every component may have.
    always: Mapping[str, Any] = field(default_factory=lambda: {"_delete_": FLAG})

    def arguments(self, target: str) -> tuple[dict[str, Any], list[str], bool, str] | None:
        """Return what ``module:Class`` takes: argument → schema, the required ones, whether it takes others too; and a
        line about it. A user-defined class takes what it declares."""
        signature = self.own.signature(target)
        if signature is None:
            return None
        is_own = target in self.own.registered.values()
        given, types = ((), {}) if is_own else (self.given, self.types)
        taken = [one for one in signature.parameters if one.word and one.name not in given]
        schemas = {one.key: dict(types.get(one.key) or of_parameter(one)) for one in taken}
        return schemas, [one.key for one in taken if one.required], signature.open, signature.doc

    def schema(self, targets: Mapping[str, str], *, word: str = "type", **options: Any) -> dict[str, Any]:
        """Return the schema of a dict with a ``type`` or a ``policy``, with the ``options`` of :meth:`cases`.

        Of a known one the arguments are known, of others anything goes.
        """
        return {
            "type": "object",
            "properties": {word: {"anyOf": [{"enum": sorted(targets)}, TEXT]}},
            "allOf": self.cases(targets, word=word, **options),
        }

    def cases(
        self,
        targets: Mapping[str, str],
        *,
        word: str = "type",
        default: str = "",
        beside: Mapping[str, Any] | None = None,
        rest: Any = False,
        whole: bool = True,
    ) -> list[dict[str, Any]]:
        """Return a rule "if it is this class, it takes these arguments" for each of ``targets``, name → class.

        ``default`` is meant where the word is missing, ``beside`` and ``rest`` are allowed beside the arguments. A part
        that is not the ``whole`` may lack arguments: its owner adds them.
        """
        found = []
        for name, target in sorted(targets.items()):
            known = self.arguments(target)
            if known is None or (known[2] and not known[0]):
                continue
            arguments, required, is_open, doc = known
            test: dict[str, Any] = {"properties": {word: {"const": name}}}
            if name != default:
                test["required"] = [word]
            properties = {word: {}, **self.always, **arguments, **(beside or {})}
            then: dict[str, Any] = {"properties": properties, "description": doc}
            needed = [key for key in required if key not in (*(beside or ()), *self.added)]
            if needed and whole:
                then["required"] = needed
            if not is_open:
                then["additionalProperties"] = rest
            found.append({"if": test, "then": then})
        return found


def of_parameter(parameter: scan.Parameter) -> dict[str, Any]:
    """Return the declared type of a parameter, or null if that is its default, and the default if it can be written."""
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
    """Return the part of an annotation that a file can write."""
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


def markdown(
    title: str,
    keys: Mapping[str, tuple[Any, str]],
    tables: Mapping[str, Mapping[str, str]],
    own: Own,
    given: Collection[str],
) -> str:
    """Return the keys of a config language, then classes by registry with what they take, to read."""
    lines = [f"# Keys of {title} configs", "", "| key | |", "|---|---|"]
    lines += [f"| `{key}` | {text} |" for key, (_, text) in keys.items()]
    for table, found in tables.items():
        lines += ["", f"## {table}", ""]
        for name, target in sorted(found.items()):
            signature = own.signature(target)
            lines.append(f"- `{name}({_words(signature, given)})` {signature.doc if signature else ''}".rstrip())
    return "\n".join(lines) + "\n"


def _words(signature: scan.Signature | None, given: Collection[str]) -> str:
    """Return the parameters as ``interval=1, by_epoch=True``."""
    if signature is None:
        return "…"
    taken = [p for p in signature.parameters if p.name not in given]
    return ", ".join(p.key if p.default is None else f"{p.key}={p.default}" for p in taken)


def line_about(target: str, signature: scan.Signature | None) -> str:
    """Return where a class comes from, and the first line of its docstring."""
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()
