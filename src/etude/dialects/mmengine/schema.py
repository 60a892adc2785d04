"""JSON Schema of an MMEngine config: the runner's keys, and what every class takes that a config can name; and a list.

Classes and their arguments are read from the sources behind the registries, so nothing has to be kept in step. A
config may hold more at its top (user-defined variables) and may name user-defined classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.tree import Tree
from etude.dialects.mmengine import names
from etude.dialects.mmengine.lower import KEYS, TABLES, WORDS
from etude.dialects.mmengine.projects import registered_by, scope_of
from etude.dialects.openmm.checks.schemas import DIALECT, DICT, FLAG, TEXT, Own, of_parameter
from etude.inspection import signatures as scan

#: Arguments that the runner gives itself, and keys that any component may have beside those of its class.
_GIVEN = {"runner", "dataloader", "optimizer", "params", "dataset", "param_name", "data_batch"}
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "HOOKS": ("priority",), "PARAM_SCHEDULERS": ("convert_to_iter_based", "epoch_length", "param_name"),
    "OPTIM_WRAPPERS": ("optimizer", "constructor", "paramwise_cfg"), "DATA_SAMPLERS": ("seed",),
    "LOOPS": ("by_epoch",), "DATASETS": ("dataset", "datasets"),
}  # fmt: skip
#: What a table's components may have beside the arguments of their classes.
_EXTRA_TYPES = KEYS.schemas("beside")
_DEFAULTS = {"OPTIM_WRAPPERS": "OptimWrapper", "LOG_PROCESSORS": "LogProcessor"}


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """The schema (draft 2020-12); with ``tree`` also of the classes that its modules register."""
    own = _own(tree)
    return {
        "$schema": DIALECT,
        "title": "MMEngine config",
        "type": "object",
        "properties": {key: {**schema, "description": text} for key, (schema, text) in KEYS.keys().items()},
        "$defs": {table: _component(table, own) for table in _tables(own)},
    }


def markdown_schema(tree: Tree | None = None) -> str:
    """The same to read: keys, then classes by registry with what they take."""
    own = _own(tree)
    lines = ["# Keys of MMEngine configs", "", "| key | |", "|---|---|"]
    lines += [f"| `{key}` | {text} |" for key, (_, text) in KEYS.keys().items()]
    for table in _tables(own):
        lines += ["", f"## {table}", ""]
        for name, target in sorted(_targets(table, own).items()):
            signature = own.signature(target)
            shown = ", ".join(_shown(p) for p in signature.parameters if p.name not in _GIVEN) if signature else "…"
            lines.append(f"- `{name}({shown})` {signature.doc if signature else ''}".rstrip())
    return "\n".join(lines) + "\n"


def _own(tree: Tree | None) -> Own:
    return Own.of(tree, WORDS, registered_by(scope_of(tree.values, tree.files)) if tree is not None else {})


def _tables(own: Own) -> list[str]:
    return sorted({*names.REGISTERED, *own.tables()})


def _component(table: str, own: Own) -> dict[str, Any]:
    """A dict with a ``type`` of this registry: of a known one the arguments are known, of others anything goes."""
    targets = _targets(table, own)
    kinds = [_case(name, table, target, own) for name, target in sorted(targets.items())]
    made: dict[str, Any] = {
        "type": "object",
        "properties": {"type": {"anyOf": [{"enum": sorted(targets)}, TEXT]}},
        "allOf": [kind for kind in kinds if kind],
    }
    return made if table in _DEFAULTS else {**made, "required": ["type"]}


def _case(name: str, table: str, target: str, own: Own) -> dict[str, Any] | None:
    signature = own.signature(target)
    if signature is None or (signature.open and not signature.parameters):
        return None
    beside = {key: _EXTRA_TYPES[key] for key in _BESIDE.get(table, ())}
    taken = [p for p in signature.parameters if p.word and p.name not in _GIVEN]
    usual = {} if target in own.table(table).values() else _EXTRA_TYPES
    arguments = {p.key: dict(usual.get(p.key) or of_parameter(p)) for p in taken}
    properties = {"type": {}, "_scope_": TEXT, "_delete_": FLAG, **arguments, **beside}
    test: dict[str, Any] = {"properties": {"type": {"const": name}}}
    if _DEFAULTS.get(table) != name:
        test["required"] = ["type"]
    then: dict[str, Any] = {"properties": properties, "description": signature.doc}
    required = [
        p.key for p in signature.parameters if p.required and p.key in arguments and p.key not in (*beside, "save_dir")
    ]
    if required:
        then["required"] = required
    if not signature.open:  # a user-defined constructor may want a dict for each of several optimizers
        then["additionalProperties"] = DICT if table == "OPTIM_WRAPPERS" else False
    return {"if": test, "then": then}


def _targets(table: str, own: Own) -> dict[str, str]:
    """Name → ``module:attr``; a user-defined class takes the place of one that it is called like."""
    return {**TABLES.get(table, {}), **own.table(table)}


def _shown(parameter: scan.Parameter) -> str:
    return parameter.key if parameter.default is None else f"{parameter.key}={parameter.default}"


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Registry → name → where it comes from and a line about it; with ``tree`` also what its project and its modules
    register."""
    own, found = _own(tree), {}
    for table in _tables(own):
        shown, homes = _targets(table, own), {**names.REGISTERED.get(table, {}), **own.table(table)}
        found[table] = {name: _line(homes[name], own.signature(shown[name])) for name in sorted(homes)}
    return found


def _line(target: str, signature: scan.Signature | None) -> str:
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()
