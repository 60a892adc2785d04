"""Finds the line of a config that an error is about: a path or URL in the message, or ``num_classes``."""

from __future__ import annotations

import re
from typing import Any

from etude.config.tree import Tree, dotted
from etude.plan import Plan

#: torch's messages about a label that is too large for the model.
_LABEL = re.compile(r"Target (\d+) is out of bounds|Class values must be smaller than num_classes")
#: Messages about missing files.
_LOST = re.compile(r"No such file|(?:does|do) not exist|cannot be downloaded|downloads nothing|can ?not be found")


def point_out(error: BaseException, plan: Plan | None) -> None:
    """Attach the line to ``error``, so that the command prints it below the message."""
    line = line_about(str(error), plan)
    if line:
        error.etude_line = line  # type: ignore[attr-defined]


def line_about(message: str, plan: Plan | None = None) -> str:
    """Return the place in the config that ``message`` is about, and what is wrong; empty if it is unknown."""
    label = _LABEL.search(message)
    if label is not None:
        return _about_label(int(label[1]) if label[1] else None, plan)
    if plan is None or not _LOST.search(message):
        return ""
    values = Tree(dict(plan.source)).walk()
    texts = [(path, value) for path, value in values if _is_address(value) and value in message]
    known = [(path, value) for path, value in texts if path in plan.places]
    path, value = max(known, key=lambda one: (len(one[1]), len(one[0])), default=((), ""))
    if not path or str(plan.places[path]) in message:
        return ""
    return f"{plan.places[path]}: {dotted(path)} is {value!r}"


def _about_label(label: int | None, plan: Plan | None) -> str:
    """Return what ``num_classes`` has to be. torch does not always say which label is too large."""
    least = f"a sample has label {label}, so {{}} at least {label + 1}" if label is not None else ""
    values = Tree(dict(plan.source)).walk() if plan is not None else ()
    found = [(path, value) for path, value in values if path[-1] == "num_classes"]
    small = [(path, value) for path, value in found if isinstance(value, int) and (label is None or value <= label)]
    for path, value in sorted(small, key=lambda one: one[0][0] != "model"):
        if plan is not None and path in plan.places:
            wrong = least.format("it must be") or "a sample has a label that is not below it"
            return f"{plan.places[path]}: {dotted(path)} is {value}; {wrong}"
    return f"the model has too few classes: {least.format('it needs')}" if least else ""


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and "/" in value and len(value) > 1
