"""Checks that the state of a checkpoint has the shape that a run expects, before any of it is used.

A digest shows that a file is what was written, not that what was written makes sense.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from etude.checkpoint.manifest import Damaged
from etude.config.shapes import anything, measured, rows, table, text, whole
from etude.errors import printable

#: What a run counts.
COUNTERS = ("step", "epoch", "step_in_epoch")


def require_shapes(state: Mapping[str, Any]) -> None:
    """Raise :class:`Damaged` for a part of another shape than its owner writes. Parts of the user may be anything."""
    for part, value in state.items():
        try:
            check: Callable[[Any], object] = _SCHEMA.get(part.partition(".")[0], anything)
            check(value)
        except (ValueError, TypeError, AttributeError) as error:
            raise Damaged(
                f"the state of {printable(part)} is of another shape ({printable(str(error))[:80]})"
            ) from None


def _weights(value: Any) -> None:
    for name, item in table(value, anything).items():
        if isinstance(item, list | dict | str) and not name.endswith("_extra_state"):
            raise ValueError(f"{name} is not a tensor")


def _optimizer(value: Any) -> None:
    """Check the words of torch; an optimizer of the user may have others."""
    if not isinstance(value, Mapping):
        raise ValueError("not a mapping")
    if "state" in value and not isinstance(value["state"], Mapping):
        raise ValueError("state is not a mapping")
    for group in rows(value.get("param_groups", []), anything):
        if not isinstance(group, Mapping):
            raise ValueError("a parameter group is not a mapping")


def _counters(value: Any) -> None:
    for name in COUNTERS:
        whole(value.get(name, 0))
    table(value.get("metrics", {}), measured)
    if value.get("ended") is not None:
        text(value["ended"])


def _generators(value: Any) -> None:
    known = table(value, anything)
    if "torch" in known and not isinstance(known["torch"], torch.Tensor):
        raise ValueError("torch is not a tensor")
    for name, word in (("python", "words"), ("numpy", "keys")):
        if name in known and not isinstance(table(known[name], anything).get(word), torch.Tensor):
            raise ValueError(f"{name}.{word} is not a tensor")


def _position(value: Any) -> None:
    """Check the counters of Étude's loader; a loader of the user may have others."""
    if isinstance(value, Mapping) and "seed" in value and "batch" in value:
        for name in ("epoch", "batch"):
            whole(value.get(name))
        if value.get("samples") is not None:
            whole(value["samples"])
        text(value.get("fingerprint", ""))


def _events(value: Any) -> None:
    known = table(value, anything)
    table(known.get("pending", {}), anything)
    table(known.get("latest", {}), anything)
    table(known.get("writers", {}), lambda item: table(item, anything))


def _update(value: Any) -> None:
    if isinstance(value, Mapping) and "pending" in value:
        whole(value["pending"])


_SCHEMA: Mapping[str, Callable[[Any], object]] = {
    "model": _weights,
    "optimizer": _optimizer,
    "update": _update,
    "data": _position,
    "events": _events,
    "counters": _counters,
    "generators": _generators,
    "plan": lambda value: table(value, anything),
}
