"""JSON Schema of the native config, so that an editor completes and checks it.

Sections come from the lowering itself: it reads a sample, and the keys that it asks for are recorded. Components come
from the registries. So the schema knows what the engine knows, and nothing has to be kept in step.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from etude import registry
from etude.config.conform import Want, declared
from etude.config.reader import REQUIRED, Asked, watch
from etude.config.tree import Tree
from etude.dialects.native import lower
from etude.inspection.check.binding import parameters_of
from etude.inspection.index import Entry, Index, table_of
from etude.registry import TABLES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: A config that leads the lowering through each of its sections.
SAMPLE: Mapping[str, Any] = {
    "model": {"type": "x"},
    "data": {split: {"dataset": {"type": "x"}} for split in lower.SPLITS},
    "optim": {"type": "x", "groups": [{"match": "x"}]},
    "schedule": {"lr": [{"type": "x"}]},
    "train": {"epochs": 1},
    "hooks": [{"type": "x"}],
    "checkpoint": {},
    "log": {},
    "parallel": {},
}
#: What each section holds, for editors and for the reference.
TEXTS = {
    "name": "name of the run and of its folder",
    "ledger": "write 32 bytes per step, so that each step can be found and replayed",
    "folder": "folder for runs",
    "imports": "modules or files that register your own components",
    "env": "environment variables that ${env:NAME} may read",
    "extra": "your own values, for references; Étude does not read them",
    "_base_": "config files that this one builds on",
    "defaults": "one file from each folder of alternatives: {optim: adamw} reads optim/adamw.yaml",
    "model": "the network",
    "loss": "one loss, or several that are summed",
    "data": "datasets, batch sizes, workers, samplers",
    "optim": "the optimizer, its parameter groups and clipping; or several by name",
    "schedule": "schedules of lr, momentum, weight_decay or any group option: one phase or several",
    "train": "length, validation, precision, device, seed",
    "metrics": "metrics of evaluations",
    "hooks": "hooks, with their priority and period",
    "checkpoint": "when to save, and which checkpoints to keep",
    "log": "when to write values, and to which writers",
    "update": "your own training step, called with each batch",
    "loop": "your own loop, instead of epochs or steps",
    "init_from": "weights to start from",
    "parallel": "DDP or FSDP2 for several processes; layers, stages and sequences that processes share",
}
#: Sections whose arguments are those of one component.
_FIXED = {("checkpoint",): ("hook", "Checkpoint")}
_PLAIN = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "none": "null"}
_AMOUNT = {"type": "string", "description": "1ep, 500step or 2h"}
_REFERENCE = {"$ref": "#/$defs/reference"}
_DOTTED = r"^[A-Za-z_]\w*(\.\w+)+$"


def schema(index: Index | None = None) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the native config."""
    registry.load_builtins()
    index = index or Index()
    with watch() as asked:
        lower.survey(Tree(dict(SAMPLE)))
    sections = _Sections(asked, index)
    root = sections.mapping(())
    for key in (*lower.SECTIONS, *lower.READING_KEYS):
        root["properties"].setdefault(key, {})
        root["properties"][key] = {"description": TEXTS.get(key, ""), **root["properties"][key]}
    kinds = sorted({ask.kind for ask in asked if ask.kind})
    defs = {_ref(kind): _component(kind, index) for kind in kinds}
    defs["reference"] = {"type": "string", "pattern": r"\$\{.+\}", "description": "another value: ${optim.lr}"}
    partial = {"properties": {key: {} for key in root["properties"]}, "additionalProperties": False}
    return {
        "$schema": DIALECT,
        "title": "Étude config",
        "type": "object",
        "if": {"required": ["_base_"]},
        "then": {"description": "builds on other files, so anything may be left out", **partial},
        "else": root,
        "$defs": defs,
    }


class _Sections:
    """Turns what was asked for into schemas of mappings."""

    def __init__(self, asked: Sequence[Asked], index: Index) -> None:
        self.asked, self.index = asked, index

    def mapping(self, path: tuple[Any, ...]) -> dict[str, Any]:
        here = [ask for ask in self.asked if ask.path == path]
        properties = {ask.key: self._value(ask, path) for ask in here if ask.key != "*"}
        required = sorted({ask.key for ask in here if ask.default is REQUIRED and ask.key != "*"})
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if path == ("schedule",):
            return {"type": "object", "additionalProperties": properties["lr"]}
        if required:
            made["required"] = required
        kinds = [ask.kind for ask in here if ask.key == "*"]
        component = next(filter(None, kinds), "")
        if component:
            properties.pop("type", None)
            made.pop("required", None)
            return made | {"$ref": f"#/$defs/{_ref(component)}", "unevaluatedProperties": False}
        if path in _FIXED:
            properties |= self._parameters(*_FIXED[path])
        return made | {"additionalProperties": bool(kinds) and path not in _FIXED}

    def _value(self, ask: Asked, path: tuple[Any, ...]) -> dict[str, Any]:
        below = (*path, ask.key)
        if self._has((*below, 0)):
            return _one_or_many(self._item((*below, 0)))
        if ask.kind:
            one = _use(ask.kind, self.index)
            many = any(a.many for a in self.asked if (a.path, a.key) == (ask.path, ask.key))
            return _one_or_many(one) if many else one
        if self._has(below):
            return self._section(below)
        found = to_schema(declared(ask.annotation))
        simple = isinstance(ask.default, bool | int | float | str)
        return {**found, "default": ask.default} if simple and ask.default != "" else found

    def _has(self, path: tuple[Any, ...]) -> bool:
        return any(ask.path == path for ask in self.asked)

    def _item(self, path: tuple[Any, ...]) -> dict[str, Any]:
        """Return the schema of an item of a list: a mapping, or the bare name of a component."""
        kind = next((a.kind for a in self.asked if a.path == path and a.key == "*" and a.kind), "")
        return {"anyOf": [_named(kind, self.index), self.mapping(path)]} if kind else self.mapping(path)

    def _section(self, path: tuple[Any, ...]) -> dict[str, Any]:
        inner = self.mapping(path)
        if path[:1] == ("parallel",) and len(path) == 2:
            return {"anyOf": [{"type": "integer", "minimum": 1}, inner]}
        if path == ("optim",):
            return {"anyOf": [inner, {"type": "object", "additionalProperties": inner}]}
        return inner if path != ("checkpoint",) else {"anyOf": [inner, {"const": False}]}

    def _parameters(self, kind: str, name: str) -> dict[str, Any]:
        table = table_of(kind)
        signature = self.index.signature(self.index.origin(table, name)) if table is not None else None
        return _properties(kind, Entry(kind, name, "", signature)) if signature else {}


def _one_or_many(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [item, {"type": "array", "items": item}]}


def _component(kind: str, index: Index) -> dict[str, Any]:
    """Return the schema of a mapping with ``type``, on which the parameters depend."""
    entries = _entries(kind, index)
    names = {"anyOf": [{"enum": [entry.name for entry in entries]}, {"type": "string", "pattern": _DOTTED}]}
    cases = [_case(kind, entry) for entry in entries]
    other = {"if": {"properties": {"type": {"pattern": r"\."}}}, "then": {"additionalProperties": True}}
    return {"type": "object", "required": ["type"], "properties": {"type": names}, "allOf": [*cases, other]}


def _case(kind: str, entry: Entry) -> dict[str, Any]:
    condition = {"properties": {"type": {"const": entry.name}}, "required": ["type"]}
    if entry.signature is None:
        return {"if": condition, "then": {"additionalProperties": True}}
    takes, _ = parameters_of(kind, entry.signature, entry.name)
    then: dict[str, Any] = {"description": described(entry), "properties": _properties(kind, entry)}
    needed = [key for key, parameter in takes.items() if parameter.required]
    if needed:
        then["required"] = needed
    if entry.signature.open:
        then["additionalProperties"] = True
    return {"if": condition, "then": then}


def _properties(kind: str, entry: Entry) -> dict[str, Any]:
    assert entry.signature is not None
    takes, _ = parameters_of(kind, entry.signature, entry.name)
    made = {}
    for key, parameter in takes.items():
        made[key] = to_schema(declared(parameter.annotation))
        default = _literal(parameter.default)
        if default is not None:
            made[key] = {**made[key], "default": default}
    return made


def _use(kind: str, index: Index) -> dict[str, Any]:
    """Describe a component: its name alone, or a mapping."""
    whole = {"$ref": f"#/$defs/{_ref(kind)}", "unevaluatedProperties": False}
    return {"anyOf": [_named(kind, index), {"type": "string", "pattern": _DOTTED}, whole]}


def _named(kind: str, index: Index) -> dict[str, Any]:
    return {"enum": [entry.name for entry in _entries(kind, index)]}


def _entries(kind: str, index: Index) -> list[Entry]:
    table = table_of(kind)
    return index.entries(table) if table is not None else []


def _ref(kind: str) -> str:
    return kind.replace(" ", "_")


def to_schema(want: Want) -> dict[str, Any]:
    """Return an annotation as JSON Schema; a reference to another value may stand for any of it."""
    found = _strict(want)
    if not found or want[0] in ("str", "any") or {"type": "string"} in found.get("anyOf", ()):
        return found
    return {"anyOf": [*(found["anyOf"] if list(found) == ["anyOf"] else [found]), _REFERENCE]}


def _strict(want: Want) -> dict[str, Any]:
    kind = want[0]
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind == "literal":
        return {"enum": list(want[1:])}
    if kind == "amount":
        return dict(_AMOUNT)
    if kind == "object":
        return {"type": "object"}
    if kind == "tensor":
        return {"type": ["number", "array", "object"]}
    if kind == "list":
        return {"type": "array", "items": to_schema(want[1])}
    if kind == "tuple":
        return _tuple(want[1:])
    if kind == "dict":
        return {"type": "object", "additionalProperties": to_schema(want[1])}
    if kind == "union":
        parts = [_strict(part) for part in want[1:]]
        return {"anyOf": parts} if all(parts) else {}
    return {}


def _tuple(items: Want) -> dict[str, Any]:
    if not items or items[-1] is ...:
        return {"type": "array", "items": to_schema(items[0]) if items else {}}
    count = len(items)
    return {"type": "array", "prefixItems": [to_schema(i) for i in items], "minItems": count, "maxItems": count}


def _literal(text: str | None) -> Any:
    try:
        value = None if text is None else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return list(value) if isinstance(value, tuple) else value


def markdown(index: Index | None = None) -> str:
    """Return the schema as Markdown: sections with their keys, then every component by kind."""
    registry.load_builtins()
    index = index or Index()
    with watch() as asked:
        lower.survey(Tree(dict(SAMPLE)))
    lines = ["# The native config", ""]
    for section in (*lower.SECTIONS, *lower.READING_KEYS):
        lines += [f"## `{section}`", "", f"{TEXTS.get(section, '')[:1].upper()}{TEXTS.get(section, '')[1:]}.", ""]
        lines += _key_table([ask for ask in asked if ask.path[:1] == (section,) and ask.key != "*"])
    for word, table in TABLES.items():
        entries = index.entries(table)
        if entries:
            lines += [f"## {word.capitalize()}", "", "| name | takes | |", "|---|---|---|"]
            lines += [f"| `{e.name}` | {_takes(table.kind, e)} | {_cell(described(e))} |" for e in entries]
            lines.append("")
    return "\n".join(lines)


def _key_table(asked: Sequence[Asked]) -> list[str]:
    rows: dict[str, str] = {}
    for ask in asked:
        way = ".".join(_shown_part(part, ask.path[:1]) for part in (*ask.path, ask.key))
        what = f"a {ask.kind}" if ask.kind else _cell(ask.annotation)
        default = "required" if ask.default is REQUIRED else "" if ask.default in (None, "") else f"`{ask.default!r}`"
        if ask.key != "type":
            rows.setdefault(way, f"| `{way}` | {what} | {default} |")
    return ["| key | holds | default |", "|---|---|---|", *rows.values(), ""] if rows else []


def _shown_part(part: str | int, section: tuple[str | int, ...]) -> str:
    """Return a part of a path for the reference: ``SPLIT``, ``VALUE`` and ``*`` stand for any of their kind."""
    if section == ("data",) and part in lower.SPLITS:
        return "SPLIT"
    if section == ("schedule",) and part == "lr":
        return "VALUE"
    return "*" if isinstance(part, int) else part


def described(entry: Entry) -> str:
    """Return what a component does in a sentence; for a component of another package, its full name."""
    doc = entry.signature.doc if entry.signature is not None else ""
    return doc or f"see ``{entry.origin.replace(':', '.')}``"


def _takes(kind: str, entry: Entry) -> str:
    if entry.signature is None:
        return "…"
    takes, _ = parameters_of(kind, entry.signature, entry.name)
    return ", ".join(f"`{key}`" if p.required else f"`{key}={_cell(str(p.default))}`" for key, p in takes.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
