"""Writes config values as Python source that evaluates to the same values. It works for any values.

The layout is the one users know from their dumped configs: ``dict(k=v)`` calls, at most 79 columns, the closing bracket
at the end of the last argument; where sequences are *spread*, every element has its own line.
"""

from __future__ import annotations

import ast
import keyword
import types
from collections.abc import Mapping
from typing import Any

from etude.fast_dataclass import record

WIDTH = 79
INDENT = 4
#: Classes, functions and methods (of Python or C), which are written as their name.
_NAMED = (
    type, types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
)  # fmt: skip


@record
class Node:
    """A piece of source: an atom (only ``opening``), or parts between brackets."""

    opening: str
    parts: tuple[Node, ...] = ()
    closing: str = ""
    #: ``call``: flows or one argument per line; ``column``: always one per line; ``mapping``: one per line when broken.
    kind: str = "call"

    @property
    def forced(self) -> bool:
        """Return whether something inside must always be broken into lines."""
        return self.kind == "column" or any(part.forced for part in self.parts)

    @property
    def broken(self) -> bool:
        """Return whether something inside is broken into lines if the statement does not fit on one."""
        several = self.kind == "mapping" and len(self.parts) > 1
        return several or self.kind == "column" or any(part.broken for part in self.parts)

    @property
    def flat(self) -> str:
        inner = ", ".join(part.flat for part in self.parts)
        return f"{self.opening}{inner}{self.end}"

    @property
    def end(self) -> str:
        """Return the closing bracket, with the comma before it if there is one."""
        return f", {self.closing}" if self.kind in ("column", "single") else self.closing


def pretty(values: Mapping[Any, Any], *, sort: bool, spread: bool, wrap: bool = True) -> str:
    """Return ``key = value`` lines. ``sort`` sorts keys; ``spread`` puts each element of a sequence on its own line."""
    statements = []
    for key, value in _items(values, sort):
        node = _node(value, sort=sort, spread=spread and wrap)
        if not (isinstance(key, str) and key.isidentifier()) or keyword.iskeyword(key):
            key = f"globals()[{key!r}]"
        node = _prefixed(f"{key} = ", node)
        fits = not node.forced and len(node.flat) <= WIDTH
        statements.append(node.flat if fits or not wrap else Page().written(node))
    return "\n".join(statements) + "\n"


class Page:
    """Writes a node that does not fit on one line."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.indent = 0

    def written(self, node: Node) -> str:
        self.put(node, tail=0, inside=False)
        return "\n".join(self.lines)

    def put(self, node: Node, *, tail: int, inside: bool) -> None:
        """Write ``node`` at the current position. ``tail`` is the number of columns after it."""
        fits = len(self.lines[-1]) + len(node.flat) + tail <= WIDTH
        if not node.parts or (fits and not node.broken):
            self.lines[-1] += node.flat
        elif node.kind in ("column", "mapping"):
            self._column(node)
        else:
            self._call(node, tail, fits=fits, inside=inside)

    def _call(self, node: Node, tail: int, *, fits: bool, inside: bool) -> None:
        self.lines[-1] += node.opening
        indent = self.indent
        if fits and (inside or len(node.parts) == 1):
            self._parts(node, tail)
            return
        self._newline(indent + INDENT)
        inner = ", ".join(part.flat for part in node.parts)
        self._parts(node, tail, each=self.indent + len(inner) + len(node.end) + tail > WIDTH)
        self.indent = indent

    def _parts(self, node: Node, tail: int, *, each: bool = False) -> None:
        """Write the parts of a node and its end; with ``each``, one per line."""
        indent, last = self.indent, len(node.parts)
        for number, part in enumerate(node.parts, start=1):
            self.put(part, tail=len(node.end) + tail if number == last else 1, inside=True)
            self.lines[-1] += node.end if number == last else "," if each else ", "
            if each and number < last:
                self._newline(indent)

    def _column(self, node: Node) -> None:
        self.lines[-1] += node.opening
        indent = self.indent
        for number, part in enumerate(node.parts, start=1):
            self._newline(indent + INDENT)
            self.put(part, tail=1, inside=True)
            self.lines[-1] += "," if node.kind == "column" or number < len(node.parts) else ""
        self._newline(indent)
        self.lines[-1] += node.closing

    def _newline(self, indent: int) -> None:
        self.indent = indent
        self.lines.append(" " * indent)


def _items(values: Mapping[Any, Any], sort: bool) -> list[tuple[Any, Any]]:
    items = list(dict.items(values)) if isinstance(values, dict) else list(values.items())
    return sorted(items, key=lambda item: str(item[0])) if sort else items


def _node(value: Any, *, sort: bool, spread: bool) -> Node:
    if isinstance(value, dict):
        return _dict_node(value, sort=sort, spread=spread)
    if type(value) in (list, tuple):
        return _sequence_node(value, sort=sort, spread=spread)
    return Node(_atom(value))


def _dict_node(value: dict[Any, Any], *, sort: bool, spread: bool) -> Node:
    items = [(key, _node(item, sort=sort, spread=spread)) for key, item in _items(value, sort)]
    if all(isinstance(key, str) and key.isidentifier() and not keyword.iskeyword(key) for key, _ in items):
        return Node("dict(", tuple(_prefixed(f"{key}=", node) for key, node in items), ")")
    return Node("dict({", tuple(_prefixed(f"{_atom(key)}: ", node) for key, node in items), "})", "mapping")


def _sequence_node(value: list[Any] | tuple[Any, ...], *, sort: bool, spread: bool) -> Node:
    parts = tuple(_node(item, sort=sort, spread=spread) for item in value)
    if isinstance(value, list):
        return Node("[", parts, "]", "column" if spread and parts else "call")
    if len(parts) == 1:
        return Node("(", parts, ")" if spread else ",)", "single" if spread else "call")
    return Node("(", parts, ")", "column" if spread and parts else "call")


def _prefixed(prefix: str, node: Node) -> Node:
    return Node(prefix + node.opening, node.parts, node.closing, node.kind)


def _atom(value: Any) -> str:
    if isinstance(value, _NAMED):
        return repr(f"{value.__module__}.{getattr(value, '__qualname__', value.__name__)}")
    if isinstance(value, float) and value != value:
        return "float('nan')"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"float('{value}')"
    text = repr(value)
    try:
        # What has no literal form is written as a text: a dump begins every run and must not stop it.
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return repr(text)
    return text
