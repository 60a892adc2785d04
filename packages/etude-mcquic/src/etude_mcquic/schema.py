"""The keys of McQuic configs, from their JSON Schema ``schema.json``.

Reading and writing (:mod:`.config`), checks and the documentation use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.config.files import table_beside
from etude.config.tree import Tree

#: The JSON schema of a config.
SCHEMA: dict[str, Any] = table_beside(__file__, "schema.json")


def fields(section: str) -> dict[str, dict[str, Any]]:
    """Return the schema of each key of a section."""
    properties = SCHEMA["properties"] if section == "Config" else SCHEMA["$defs"][section]["properties"]
    return {key: schema for key, schema in properties.items() if key != "$schema"}


def is_required(section: str, key: str) -> bool:
    return key in (SCHEMA if section == "Config" else SCHEMA["$defs"][section])["required"]


TARGETS: tuple[str, ...] = tuple(fields("Train")["target"]["enum"])


def markdown_schema(tree: Tree | None = None) -> str:
    """Return the schema as Markdown."""
    lines = ["# The config of McQuic", ""]
    for name in ("Config", "Train", "General", "GPU"):
        lines += [f"## {name}", "", "| key | value | required | |", "|---|---|---|---|"]
        for key, schema in fields(name).items():
            required = "yes" if is_required(name, key) else "no"
            lines.append(f"| `{key}` | {kind(schema)} | {required} | {schema['description']} |")
        lines.append("")
    return "\n".join(lines)


def kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(schema["enum"])
    if schema["type"] == "array":
        return f"list of {kind(schema['items'])}"
    least = f", at least {schema['minimum']}" if "minimum" in schema else ""
    return f"{schema['type']}{least}"
