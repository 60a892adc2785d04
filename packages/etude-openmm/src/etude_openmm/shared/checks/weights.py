"""Finds checkpoints that are not there yet. They may come before the run does, so that is a warning."""

from __future__ import annotations

from collections.abc import Mapping

from etude.config.tree import dotted
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.reading.source import is_missing, missing_weights


def report_weights(low: Lowering, *keys: str) -> None:
    """Warn about files that the top-level ``keys`` and the ``Pretrained`` rules of a config name."""
    ways = [(key,) for key in keys if is_missing(low.tree.get(key))]
    rules = [(*path, "checkpoint") for path, value in low.tree.walk() if _is_pretrained(value)]
    for way in (*ways, *rules):
        if lack := missing_weights(low.tree.get(*way)):
            low.warning(low.place(*way), f"{dotted(way)}: {lack[0]}", lack[1])


def _is_pretrained(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "Pretrained"
