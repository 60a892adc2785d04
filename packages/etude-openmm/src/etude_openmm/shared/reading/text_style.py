"""Configs in text style: ``_base_`` files, substitutions, the file's own code, merged child over bases."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from etude.config import no_code
from etude.fast_dataclass import record
from etude_openmm.shared.config.merge import merge
from etude_openmm.shared.errors import (
    ConfigFileMissing,
    ConfigImportError,
    ConfigKeyError,
    ConfigRuntimeError,
    ConfigTypeError,
)
from etude_openmm.shared.project_names import install
from etude_openmm.shared.reading import places
from etude_openmm.shared.reading.source import (
    Source,
    filled,
    listed,
    near_files,
    own_values,
    parsed,
    read_text,
    unite,
    warn_if_deprecated,
    with_environment,
    with_placeholders,
    with_predefined,
)
from etude_openmm.shared.reading.syntax import BASE, assigns_base


@record
class Style:
    """What differs between the two systems' text configs."""

    dict_class: Any
    predefined: bool = True
    environment: bool = False
    #: ``_base_`` is read from the text first and is a live object in the code; else the code runs first.
    live_base: bool = False
    #: A base in pure-Python style is refused.
    refuse_lazy: bool = False


def read_chain(filename: str | os.PathLike[str], style: Style, seen: tuple[str, ...] = ()) -> Source:
    """Return the file and all its bases as one."""
    path, original = read_text(filename)
    if path in seen:
        raise ConfigRuntimeError(f"{path} inherits from itself: {' -> '.join([*seen, path])}", at=path)
    if style.refuse_lazy:
        _refuse_lazy(original, path, seen)
    text = with_predefined(original, path) if style.predefined else original
    text, env = with_environment(text, path) if style.environment else (text, {})
    marked, names = with_placeholders(text)
    base, own = _run(marked, path, style, (*seen, path))
    base.env.update(env)
    where = places.places_in(marked, path)
    with _on_line_of(r"\{\{\s*_base_\.", original, path):
        values = filled(own, names, base.values, path)
    warn_if_deprecated(values, path)
    merged: Any = merge(values, base.values, where=_places_of(where, path)) if base.files else values
    base.remember(where, values)
    return Source(
        merged if isinstance(merged, style.dict_class) else style.dict_class(merged),
        "\n".join([*([base.text] if base.text else []), f"{path}\n{original}"]),
        base.env,
        places.over(where, base.places, values),
        {**base.files, path: original},
        base.history,
    )


@contextmanager
def _on_line_of(pattern: str, text: str, path: str) -> Iterator[None]:
    """Report a mistake of a whole file at the line with ``pattern``, if possible one with the words of the message."""
    try:
        yield
    except ConfigKeyError as error:
        first = error.findings[0]
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if re.search(pattern, line)]
        words = first.message.partition(":")[0]
        best = [number for number, line in lines if words in line] or [number for number, _ in lines]
        raise ConfigKeyError(first.message, at=f"{path}:{best[0]}" if best else path, hint=first.hint) from None


def _places_of(where: places.Places, path: str) -> Callable[[str], str]:
    """Return where a file writes a key: its line, else that of the nearest key above."""
    lines = {".".join(map(str, way)): place.line for way, place in where.items()}

    def place(dotted: str) -> str:
        while dotted and dotted not in lines:
            dotted = dotted.rpartition(".")[0]
        return f"{path}:{lines[dotted]}" if dotted else path

    return place


def _run(marked: str, path: str, style: Style, seen: tuple[str, ...]) -> tuple[Source, dict[Any, Any]]:
    """Return the united bases, and the file's own values with placeholders still inside."""
    if style.live_base and path.endswith(".py"):
        base = _united(bases_in(marked, path), path, style, seen)
        return base, own_values(marked, path, base.values)
    own = own_values(marked, path)
    return _united(own.pop(BASE, None), path, style, seen), own


def _united(bases: Any, path: str, style: Style, seen: tuple[str, ...]) -> Source:
    union = Source(style.dict_class())
    found = []
    for name in listed(bases, path) if bases is not None else []:
        file, scope = base_file(name, path)
        if not os.path.isfile(file):
            raise ConfigFileMissing(
                f'file "{os.path.abspath(file)}" does not exist',
                at=f"{path}:{_line_with(name, path)}", hint=near_files(os.path.abspath(file)),
            )  # fmt: skip
        source = read_chain(file, style, seen)
        if scope:
            source.values = scoped(source.values, scope)
        found.append((file, source.values))
        union.include(source)
    with _on_line_of(r"_base_\b", read_text(path)[1], path):
        union.values = unite(found, path, union.values)
    return union


def _line_with(name: str, path: str) -> int:
    """Return the line of the file at ``path`` that names a base."""
    lines = read_text(path)[1].splitlines()
    return next((number for number, line in enumerate(lines, 1) if name in line), 1)


def bases_in(text: str, path: str) -> Any:
    """Return the value of ``_base_``, evaluated alone; None when the file has none."""
    for statement in parsed(text, path).body:
        if assigns_base(statement):
            value = statement.value  # type: ignore[attr-defined]
            no_code.refuse_program(path)
            try:
                return eval(compile(ast.Expression(value), path, "eval"), {})
            except Exception as error:
                raise ConfigTypeError(
                    f"`_base_` is evaluated before the file runs and must be a literal: {error}",
                    at=f"{path}:{statement.lineno}",
                ) from error
    return None


def base_file(name: str, path: str) -> tuple[str, str | None]:
    """Return the file that ``_base_`` names, beside ``path`` or (``package::file``) in a package; and the scope."""
    if "::" not in name:
        return os.path.join(os.path.dirname(path), name), None
    from importlib.metadata import PackageNotFoundError

    from etude_openmm.shared.packages import get_installed_path

    scope, _, inner = name.partition("::")
    try:
        package = get_installed_path(scope)
    except PackageNotFoundError:
        place = f"{path}:{_line_with(name, path)}"
        text = f"the base {name} is in the package {scope!r}, which is not installed"
        raise ConfigImportError(text, at=place, hint=install(scope)) from None
    for folder in (".mim/configs", "configs", "", "../configs"):  # the last in a checkout that was never installed
        candidate = os.path.join(package, folder, inner)
        if os.path.isfile(candidate):
            return os.path.normpath(candidate), scope
    return os.path.join(package, ".mim/configs", inner), scope


def scoped(values: Any, scope: str, outer: bool = True) -> Any:
    """Add ``_scope_`` to the outermost dicts with a ``type``, so that their names are looked up in that package."""
    if isinstance(values, dict):
        if outer and "type" in values:
            outer = False
            values.setdefault("_scope_", scope)
        for key, item in dict.items(values):
            dict.__setitem__(values, key, scoped(item, scope, outer))
        return values
    if type(values) in (list, tuple):
        return type(values)(scoped(item, scope, outer) for item in values)
    return values


def _refuse_lazy(text: str, path: str, seen: tuple[str, ...]) -> None:
    from etude_openmm.shared.reading.lazy_style import is_lazy

    if seen and path.endswith(".py") and is_lazy(text, path):
        raise ConfigRuntimeError(
            f"{path} is written in pure-Python style (`with read_base():`, imports), {seen[-1]} in text style "
            "(`_base_ = ...`); the two do not go together along one chain", at=path,
            hint="write both in one style, or pass lazy_import=False",
        )  # fmt: skip
