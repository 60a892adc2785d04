"""Runs Python configs, and takes the line of every key from the syntax tree.

A key is a name that the file assigns at its top level. Names that begin with an underscore, imports, functions and
classes are the file's own business.
"""

from __future__ import annotations

import ast
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from etude.config.tree import Path, Tree, copied, dotted
from etude.errors import ConfigError, printable
from etude.plan import Place

#: Names with an underscore that mean something to the config reader.
_SPECIAL = ("_base_",)


def parse_python(text: str, file: str) -> Tree:
    """Run ``text`` and keep what it assigns. A config that raises is reported with its own line, not a traceback."""
    module = _syntax(text, file)
    # By this name the reader knows a class that a config defines: nobody could import it again.
    scope: dict[str, Any] = {"__file__": os.path.abspath(file), "__name__": "__etude_config__"}
    folder = os.path.dirname(os.path.abspath(file))
    sys.path.insert(0, folder)
    try:
        exec(compile(module, file, "exec"), scope)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: a config must not end the command
        raise ConfigError(f"the config raised {_said(error)}", at=_line_of(error, file)) from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    names = [name for name in assigned(module) if name in scope and (name in _SPECIAL or not name.startswith("_"))]
    return Tree({name: copied(scope[name]) for name in names}, positions(module, file))


def assigned(module: ast.Module) -> list[str]:
    """Return the names that a module assigns at its top level, also below ``if``, ``for``, ``with`` and ``try``."""
    return list(dict.fromkeys(str(path[0]) for path, _ in _assignments(module.body)))


def positions(module: ast.Module, file: str) -> dict[Path, Place]:
    """Return the place of every key of the dicts, ``dict(…)`` calls and lists that a module assigns at its top
    level."""
    places: dict[Path, Place] = {(): Place(file, 1)}

    def note(path: Path, line: int, value: ast.expr | None) -> None:
        places[path] = Place(file, line, dotted(path))
        for key, below in _children(value):
            note((*path, key), below.lineno, below if isinstance(below, ast.expr) else below.value)

    for path, statement in _assignments(module.body):
        note(path, statement.lineno, getattr(statement, "value", None))
    return places


def _assignments(body: list[ast.stmt]) -> Iterator[tuple[Path, ast.stmt]]:
    for statement in body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from ((path, statement) for path in _targets(target))
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
            yield from ((path, statement) for path in _targets(statement.target))
        else:
            for name in ("body", "orelse", "finalbody"):
                if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _assignments(getattr(statement, name, []))
            for handler in getattr(statement, "handlers", []):
                yield from _assignments(handler.body)


def _targets(target: ast.expr) -> Iterator[Path]:
    """Yield ``name``, ``name["key"][0]``, and the parts of an unpacking."""
    if isinstance(target, ast.Name):
        yield (target.id,)
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _targets(part)
    elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        for path in _targets(target.value):
            if isinstance(target.slice.value, str | int):
                yield (*path, target.slice.value)


def _children(value: ast.expr | None) -> Iterator[tuple[str | int, ast.expr | ast.keyword]]:
    if isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str | int):
                yield key.value, _at(item, key.lineno)
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict":
        for keyword in value.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword
    elif isinstance(value, ast.List | ast.Tuple):
        yield from enumerate(value.elts)


def _at(item: ast.expr, line: int) -> ast.keyword:
    """Return the value of a dict display, with the line of its key."""
    return ast.keyword(arg=None, value=item, lineno=line, col_offset=0)


def _syntax(text: str, file: str) -> ast.Module:
    try:
        return ast.parse(text, file)
    except SyntaxError as error:
        raise ConfigError(f"not valid Python: {error.msg}", at=str(Place(file, error.lineno or 0))) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not valid Python: {error}", at=file) from None


def _said(error: BaseException) -> str:
    text = printable(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _line_of(error: BaseException, file: str) -> str:
    """Return the last line of the config itself in the error's traceback."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return str(Place(file, (lines[-1] if lines else 0) or 0))
