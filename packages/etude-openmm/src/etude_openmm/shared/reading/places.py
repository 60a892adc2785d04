"""File and line of every key that a config file writes, found in its text without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from etude.config.tree import Path
from etude.plan import Place
from etude_openmm.shared.reading.syntax import tree_of

Places = dict[Path, Place]
#: A path and the line that writes it, or the variable whose parts are its own.
Written = tuple[Path, int | str]
_GROWING = ("append", "extend", "insert")


def places_in(text: str, file: str) -> Places:
    """Return every path that ``text`` assigns, and where; none if the text cannot be parsed."""
    if not file.endswith(".py"):
        return _places_in_yaml(text, file)
    places: Places = {}
    for statement in _statements(_body(text)):
        for path, at in _assigned(statement):
            if isinstance(at, int):
                places[path] = _place(file, at, path)
            else:  # a variable: its parts are where it was assigned
                inner = [
                    (found[1:], place.line) for found, place in places.items() if found[0] == at and len(found) > 1
                ]
                places |= {(*path, *rest): _place(file, line, (*path, *rest)) for rest, line in inner}
    return places


def _place(file: str, line: int, path: Path) -> Place:
    return Place(file, line, ".".join(map(str, path)))


def grown_in(text: str, file: str) -> Places:
    """Return the lists that ``text`` adds items to (``custom_hooks.append(…)``, ``custom_hooks += […]``), and where."""
    found: Places = {}
    for statement in _statements(_body(text)):
        call = statement.value if isinstance(statement, ast.Expr) else None
        grown: ast.expr | None = statement.target if isinstance(statement, ast.AugAssign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _GROWING:
            grown = call.func.value
        path = _path_of(grown) if grown is not None else ()
        if path:
            found[path] = _place(file, statement.lineno, path)
    return found


def _body(text: str) -> list[ast.stmt]:
    try:
        return tree_of(text).body
    except SyntaxError:
        return []


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for block in ("body", "orelse", "finalbody"):
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _statements(getattr(statement, block, []))


def _assigned(statement: ast.stmt) -> Iterator[Written]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _to_target(target, statement.value, statement.lineno)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from _to_target(statement.target, statement.value, statement.lineno)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield from _by_method(statement.value)


def _to_target(target: ast.expr, value: ast.expr, line: int) -> Iterator[Written]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, item in zip(target.elts, value.elts, strict=True):
            yield from _to_target(one, item, item.lineno)
        return
    path = _path_of(target)
    if path:
        yield path, line
        yield from _inside(path, value)


def _path_of(target: ast.expr) -> Path:
    """Return ``("model", "neck", "out")`` for ``model.neck["out"]``; ``_base_.model`` counts as ``model``."""
    if isinstance(target, ast.Name):
        return () if target.id == "_base_" else (target.id,)
    if isinstance(target, ast.Attribute):
        return (*_path_of(target.value), target.attr)
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        key = target.slice.value
        return (*_path_of(target.value), key) if isinstance(key, str | int) else ()
    return ()


def _by_method(call: ast.Call) -> Iterator[Written]:
    """Yield what ``model.update(dict(a=1))``, ``model.merge(...)`` and ``train_cfg.update(max_epochs=5)`` write."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("update", "merge"):
        return
    path = _path_of(call.func.value)
    if path:
        yield from _inside(path, ast.Call(func=ast.Name("dict"), args=[], keywords=call.keywords))
        for given in call.args:
            yield from _inside(path, given)


def _inside(path: Path, value: ast.expr) -> Iterator[Written]:
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        for given in value.args:
            yield from _inside(path, given)
        for pair in value.keywords:
            if pair.arg is not None:
                yield (*path, pair.arg), pair.value.lineno if pair.lineno is None else pair.lineno
                yield from _inside((*path, pair.arg), pair.value)
    elif isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str | int):
                yield (*path, key.value), key.lineno
                yield from _inside((*path, key.value), item)
    elif isinstance(value, ast.List | ast.Tuple):
        for index, item in enumerate(value.elts):
            yield (*path, index), item.lineno
            yield from _inside((*path, index), item)
    elif isinstance(value, ast.Name):
        yield path, value.id


def _places_in_yaml(text: str, file: str) -> Places:
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return {}
    return {path: _place(file, line, path) for path, line in _in_node((), root)}


def _in_node(path: Path, node: Any) -> Iterator[tuple[Path, int]]:
    if node.id == "mapping":
        for key, value in node.value:
            here = (*path, key.value)
            yield here, key.start_mark.line + 1
            yield from _in_node(here, value)
    elif node.id == "sequence":
        for index, value in enumerate(node.value):
            yield (*path, index), value.start_mark.line + 1
            yield from _in_node((*path, index), value)


def over(child: Places, base: Places, values: dict[Any, Any]) -> Places:
    """Return the places after merging ``child`` over ``base``; a dict that it replaces loses its inner places."""
    replaced = {path for path in child if not _merges(values, path)}
    kept = {path: place for path, place in base.items() if not any(path[:n] in replaced for n in range(1, len(path)))}
    return {**kept, **child}


def value_at(values: Any, path: Path) -> Any:
    """Return what stands at ``path``; None where nothing does."""
    for part in path:
        try:
            values = dict.get(values, part) if isinstance(values, dict) else values[part]
        except (TypeError, IndexError, KeyError):
            return None
    return values


def _merges(values: Any, path: Path) -> bool:
    values = value_at(values, path)
    return isinstance(values, dict) and not values.get("_delete_", False)
