"""Lists the entries that a McQuic config can name by ``key``, for ``etude list --dialect mcquic``."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

from etude.config.tree import Tree
from etude.inspection import signatures as scan
from etude.inspection.signature_cache import cached
from etude_mcquic.lower import registered
from etude_mcquic.schema import SCHEMA

#: Section and key of a config → the registry of its ``key``.
_NAMED_IN = {
    ("", "model"): "model",
    ("Train", "optim"): "OptimizerRegistry",
    ("Train", "schdr"): "LrSchedulerRegistry",
    ("Train", "hooks"): "HookRegistry",
}


def tables(tree: Tree | None = None) -> dict[str, dict[str, str]]:
    """Map registry → key → origin and description, from sources; with ``tree``, including its external libraries."""
    tree = tree or Tree({})
    return {
        registry: {key: _line(target, tree) for key, target in sorted(entries.items())}
        for registry, entries in registered(tree).items()
    }


def schema(tree: Tree | None = None) -> dict[str, Any]:
    """Return the JSON Schema; with ``tree``, including the entries of its external libraries with their arguments."""
    made = copy.deepcopy(SCHEMA)
    if tree is None:
        return made
    sections = {"": made["properties"], "Train": made["$defs"]["Train"]["properties"]}
    for (section, name), registry in _NAMED_IN.items():
        node, named = sections[section][name], registered(tree).get(registry, {})
        node.get("items", node)["anyOf"] = [
            {"properties": {"key": {"pattern": r"\."}}},
            *(_call(key, target, tree) for key, target in sorted(named.items())),
        ]
    return made


def _call(key: str, target: str, tree: Tree) -> dict[str, Any]:
    """Return the schema of one key and its ``params``."""
    signature = _signature(target, tree)
    if signature is None:
        return {"properties": {"key": {"const": key}}}
    given = ("self", "params", "optimizer")  # added by the trainer
    arguments: dict[str, Any] = {one.key: {} for one in signature.parameters if one.name not in given}
    params = {"type": "object", "properties": arguments, "additionalProperties": signature.open}
    return {"properties": {"key": {"const": key}, "params": params}}


def _line(target: str, tree: Tree) -> str:
    signature = _signature(target, tree)
    return f"{target.replace(':', '.')}  {signature.doc if signature else ''}".rstrip()


def _signature(target: str, tree: Tree) -> scan.Signature | None:
    folders = [str(Path(file).absolute().parent) for file in tree.files]
    return scan.signature(target, folders=[*folders, *sys.path], known=cached)
