"""The keys of LiBai and detectron2 configs, from their JSON Schema ``keys.json``. Imports no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any

from etude.config.tree import Path

#: Sections of detectron2's yacs configs, which only their script can use.
YACS = re.compile(r"^(?:MODEL|SOLVER|DATASETS|DATALOADER|_BASE_)[ \t]*:", re.MULTILINE)
#: ``default`` is the value of the common configs, LiBai's before detectron2's.
SCHEMA: dict[str, Any] = json.loads(FilePath(__file__).with_name("keys.json").read_text(encoding="utf-8"))


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
