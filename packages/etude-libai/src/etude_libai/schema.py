"""The keys of LiBai's and detectron2's configs, from their JSON Schema ``keys.json``. Imports no torch."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.files import table_beside
from etude.config.tree import Path, Tree
from etude.inspection import signatures
from etude.inspection.signature_cache import cached

#: ``default`` is the value of the common configs, LiBai's before detectron2's.
SCHEMA: dict[str, Any] = table_beside(__file__, "keys.json")


def value(way: Path) -> dict[str, Any]:
    """Return the schema of a known key."""
    node = SCHEMA
    for key in way:
        node = node["properties"][key]
    return node


def _sections(way: Path, node: Mapping[str, Any]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield way, tuple(node["properties"])
    for key, inner in node["properties"].items():
        if "properties" in inner and key != "dataloader":  # may hold any loaders
            yield from _sections((*way, key), inner)


#: Section → its keys. Any other key is probably misspelt.
KEYS: dict[Path, tuple[str, ...]] = dict(_sections((), SCHEMA))
NAMESPACES = KEYS[()]

#: The lazy calls of a config that usually name user-defined classes.
_CALLS: tuple[Path, ...] = (
    ("model",), ("optim",), ("optimizer",), ("train", "scheduler"), ("train", "evaluation", "evaluator"),
    ("tokenization", "tokenizer"),
)  # fmt: skip


def json_schema(tree: Tree | None = None) -> dict[str, Any]:
    """Return the schema. It allows other keys everywhere, because configs hold variables and hooks may read any key.

    With ``tree``, the model, the optimizer and so on have the arguments of the classes that the config names.
    """
    made = copy.deepcopy(SCHEMA)
    for way, schema in _own_calls(tree):
        node = made
        for key in way[:-1]:
            node = node["properties"][key]
        node["properties"][way[-1]] = schema
    return made


def markdown_schema(tree: Tree | None = None) -> str:
    """Return the schema as Markdown."""
    lines = ["# Keys of LiBai's and detectron2's configs", "", "| key | value | default | |", "|---|---|---|---|"]
    for section, keys in KEYS.items():
        for key in keys:
            name = ".".join(map(str, (*section, key)))
            found = value((*section, key))
            default = f"`{found['default']}`" if "default" in found else ""
            lines.append(f"| `{name}` | {_word(found)} | {default} | {found.get('description', '')} |")
    for way, schema in _own_calls(tree):
        lines += ["", f"## {'.'.join(map(str, way))}: {schema['properties']['_target_']['const']}", ""]
        lines += [schema["description"], "", "| argument | default |", "|---|---|"]
        arguments = [(key, about) for key, about in schema["properties"].items() if key != "_target_"]
        lines += [f"| `{key}` | {about.get('description', 'required')} |" for key, about in arguments]
    return "\n".join(lines) + "\n"


def _own_calls(tree: Tree | None) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the path and the schema of each lazy call of a class whose source is found."""
    for way in [path for path in _CALLS if tree is not None]:
        node = tree.get(*way) if tree is not None else None
        target = str(node.get("_target_", "")) if isinstance(node, Mapping) else ""
        signature = signatures.signature(":".join(target.rsplit(".", 1)), folders=tuple(sys.path), known=cached)
        if signature is None:
            continue
        arguments = {
            parameter.key: {} if parameter.required else {"description": f"default {parameter.default}"}
            for parameter in signature.parameters
            if parameter.name not in ("self", "params")
        }
        yield (
            way,
            {
                "description": signature.doc or value(way).get("description", ""),
                "type": "object",
                "required": ["_target_"],
                "properties": {"_target_": {"const": target}, **arguments},
                "additionalProperties": signature.open or "params" in (node or {}),
            },
        )


def _word(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return "lazy call"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = schema.get("type", "")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
