"""The keys of LiBai and detectron2 configs, from their JSON Schema ``keys.json``. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.files import table_beside
from etude.config.tree import Path

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
