"""Writes a config as Python statements, formatted like black (88 columns, double quotes)."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from etude_libai.lazy.extra import omegaconf
from etude_libai.lazy.targets import name_of

WIDTH = 88


def to_py(cfg: Any, prefix: str = "cfg.") -> str:
    """Return a config as Python, with interpolations resolved and keys sorted; unformatted if it is no valid Python."""
    container = omegaconf().OmegaConf.to_container(cfg, resolve=True)
    text = _statements(container, prefix)
    try:
        return _formatted(text)
    except SyntaxError:
        return text


def _statements(node: Any, prefix: str) -> str:
    if "_target_" in node:
        return prefix + _expression(node)
    lines = []
    for key, value in sorted(node.items()):
        if isinstance(value, Mapping) and "_target_" not in value:
            lines.append(_statements(value, f"{prefix}{key}."))
        else:
            lines.append(f"{prefix}{key}={_expression(value)}")
    return "\n".join(lines)


def _expression(value: Any) -> str:
    if isinstance(value, Mapping) and "_target_" in value:
        target = value["_target_"]
        name = (
            target
            if isinstance(target, str)
            else _expression(target)
            if isinstance(target, Mapping)
            else name_of(target)
        )
        arguments = ((key, item) for key, item in sorted(value.items()) if key != "_target_")
        return f"{name}({', '.join(f'{key}={_expression(item)}' for key, item in arguments)})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_expression(item)}" for key, item in sorted(value.items())) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_expression, value)) + "]"
    return repr(value)


# -- layout ------------------------------------------------------------------------------------------------------------


def _formatted(text: str) -> str:
    """Format every statement. Blank lines (of empty mappings) between statements stay, at most two."""
    tree = ast.parse(text)
    lines: list[str] = []
    previous_end = None
    for statement in tree.body:
        if previous_end is not None:
            lines.extend([""] * min(statement.lineno - previous_end - 1, 2))
        lines.append(_statement(statement))
        previous_end = statement.end_lineno
    return "\n".join(lines) + "\n" if lines else ""


def _statement(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign):
        head = f"{ast.unparse(statement.targets[0])} = "
        return _laid_out(head, statement.value, "", 0)
    if isinstance(statement, ast.Expr):
        return _laid_out("", statement.value, "", 0)
    return ast.unparse(statement)


def _laid_out(head: str, node: ast.expr, tail: str, indent: int) -> str:
    """Return ``head`` + expression + ``tail``, on one line if it fits, else split at its brackets."""
    pad = " " * indent
    flat = _flat(node)
    if len(pad) + len(head) + len(flat) + len(tail) <= WIDTH:
        return f"{pad}{head}{flat}{tail}"
    opening, items, closing = _brackets(node)
    if not items:
        # A value without brackets gets parentheses if that makes it fit and it is a whole statement.
        fits = indent == 0 and head and len(flat) + 4 <= WIDTH
        return f"{head}(\n    {flat}\n){tail}" if fits else f"{pad}{head}{flat}{tail}"
    inner = " " * (indent + 4)
    body = ", ".join(label + _flat(item) for label, item in items)
    if len(inner) + len(body) <= WIDTH and len(items) > 1:
        lines = [inner + body]
    elif len(items) == 1 and not isinstance(node, ast.Tuple):
        lines = [_laid_out(items[0][0], items[0][1], "", indent + 4)]
    else:
        lines = [_laid_out(label, item, ",", indent + 4) for label, item in items]
    return "\n".join([f"{pad}{head}{opening}", *lines, f"{pad}{closing}{tail}"])


def _brackets(node: ast.expr) -> tuple[str, list[tuple[str, ast.expr]], str]:
    """Return the opening bracket, the items (label and value) and the closing bracket; no items for other nodes."""
    if isinstance(node, ast.Call):
        items = [("", item) for item in node.args]
        items += [(f"{word.arg}=" if word.arg else "**", word.value) for word in node.keywords]
        return f"{_flat(node.func)}(", items, ")"
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return "{", [(f"{_flat(key)}: " if key else "**", value) for key, value in pairs], "}"
    for kind, opening, closing in ((ast.List, "[", "]"), (ast.Tuple, "(", ")"), (ast.Set, "{", "}")):
        if isinstance(node, kind):
            return opening, [("", item) for item in node.elts], closing
    return "", [], ""


def _flat(node: ast.expr) -> str:
    opening, items, closing = _brackets(node)
    if opening:
        comma = "," if isinstance(node, ast.Tuple) and len(items) == 1 else ""
        return opening + ", ".join(label + _flat(item) for label, item in items) + comma + closing
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _string(node.value)
    return ast.unparse(node)


def _string(text: str) -> str:
    """Return the string in double quotes, unless that needs more backslashes."""
    shown = repr(text)
    if shown.startswith('"') or '"' in shown[1:-1]:
        return shown
    return f'"{shown[1:-1]}"'
