"""Checks the values of known keys. Imports no torch."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.errors import Finding
from etude.errors.spelling import nearest
from etude_libai import schema

_PYTHON = {"integer": int, "number": (int, float), "string": str, "boolean": bool, "object": Mapping, "array": list}


#: Switches of OneFlow's compiler without a counterpart, and what happens in their place.
_IDLE: dict[Path, str] = {
    ("graph", "auto_parallel", "enabled"): "tensors are split as the model and train.dist say, nothing is searched for",
    ("graph", "global_mode", "enabled"): "processes train data parallel, with or without it",
}


def wrong_values(tree: Tree) -> list[Finding]:
    """Return a finding for every known key with a value that its schema does not allow."""
    found = []
    for section, keys in schema.KEYS.items():
        node = tree.get(*section)
        for key in keys if isinstance(node, Mapping) and "_target_" not in node else ():
            wrong = misfit(node[key], schema.value((*section, key))) if key in node else ""
            if wrong:
                way = (*section, key)
                found.append(Finding(str(tree.place(*way)), f"{dotted(way)} is {node[key]!r}: {wrong}"))
    return [*found, *_together(tree)]


def _together(tree: Tree) -> list[Finding]:
    """Return a finding for values that contradict each other or have no effect."""
    found = []
    micro, total = (tree.get("train", key) for key in ("train_micro_batch_size", "global_batch_size"))
    if isinstance(micro, int) and isinstance(total, int) and micro > 0 and total % micro:
        text = f"train.global_batch_size is {total}: a multiple of train_micro_batch_size ({micro}) is needed"
        found.append(Finding(str(tree.place("train", "global_batch_size")), text))
    for way, why in _IDLE.items():
        if tree.get(*way) is True:
            found.append(Finding(str(tree.place(*way)), f"{dotted(way)} has no effect: {why}", severity="warning"))
    way = ("train", "scheduler", "milestones")
    shares = tree.get(*way)
    known = isinstance(shares, list) and all(isinstance(share, int | float) for share in shares)
    if known and any(share >= 1 for share in shares):
        text, hint = f"{dotted(way)} is {shares}: less than 1 is needed", "such as [0.5, 0.75]"
        found.append(Finding(str(tree.place(*way)), text, f"they are shares of the length, {hint}"))
    elif known and any(share >= following for share, following in itertools.pairwise(shares)):
        text = f"{dotted(way)} is {shares}: each must be larger than the one before"
        found.append(Finding(str(tree.place(*way)), text))
    return found


def missing_weights(tree: Tree) -> list[Finding]:
    """Return a finding for initial weights that do not exist. A resumed run does not need them."""
    found = []
    for key, kind, is_there in (("load_weight", "folder", os.path.isdir), ("init_checkpoint", "file", os.path.isfile)):
        weights = tree.get("train", key)
        if isinstance(weights, str) and weights and not re.search(r"\$\{|://", weights) and not is_there(weights):
            at = str(tree.place("train", key))
            found.append(Finding(at, f"train.{key} is {weights!r}: there is no such {kind}"))
    return found


def misfit(value: Any, wanted: Mapping[str, Any]) -> str:
    """Return what is wrong with a value by its schema; empty if nothing is."""
    if value is None or (isinstance(value, str) and "${" in value):
        return ""
    if "enum" in wanted:
        if value in wanted["enum"]:
            return ""
        words = [str(word) for word in wanted["enum"]]
        near = nearest(str(value), words)
        return f"one of {', '.join(words)} is needed" + (f", did you mean {near!r}?" if near else "")
    kinds = wanted.get("type", ())
    words = [kinds] if isinstance(kinds, str) else [word for word in kinds if word != "null"]
    if words and not any(_is(value, word) for word in words):
        return f"{'a section' if words == ['object'] else _article(words[0])} is needed"
    if "pattern" in wanted and not re.fullmatch(wanted["pattern"], str(value)):
        return "a device such as cpu, cuda or cuda:1 is needed"
    return _outside(value, wanted) if isinstance(value, int | float) else ""


def _is(value: Any, word: str) -> bool:
    if isinstance(value, bool) and word != "boolean":
        return False
    if word == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _PYTHON[word])  # type: ignore[arg-type]


def _outside(value: float, wanted: Mapping[str, Any]) -> str:
    if "minimum" in wanted and value < wanted["minimum"]:
        return f"at least {wanted['minimum']} is needed"
    if "maximum" in wanted and value > wanted["maximum"]:
        return f"at most {wanted['maximum']} is needed"
    if "exclusiveMaximum" in wanted and value >= wanted["exclusiveMaximum"]:
        return f"less than {wanted['exclusiveMaximum']} is needed"
    return ""


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeio" else f"a {word}"
