"""Configs in pure-Python style: bases are imported in ``with read_base():``, other imports become stand-ins."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import os
from typing import Any

from etude.config import no_code
from etude.config.files import imported_file
from etude.errors.spelling import suggest
from etude_openmm.shared.config.dict_v2 import ConfigDict
from etude_openmm.shared.errors import ConfigImportError, ConfigKeyError, ConfigRuntimeError
from etude_openmm.shared.reading import places
from etude_openmm.shared.reading.lazy_objects import LazyObject, read_base
from etude_openmm.shared.reading.source import Source, config_keys, near_files, parsed, read_text
from etude_openmm.shared.reading.syntax import assigns_base, fresh_tree, is_builtin, statements


class ConfigParsingError(ConfigRuntimeError):
    """Something that a pure-Python config must not contain."""


def is_lazy(text: str, path: str) -> bool:
    """Return whether a config is in pure-Python style.

    It is if it has ``with read_base():``, a relative import, or an import from outside the standard library, and no
    assignment to ``_base_`` before them.
    """
    for node in statements(parsed(text, path)):
        if assigns_base(node):
            return False
        if isinstance(node, ast.With):
            _require_read_base(node, path)
            return True
        if isinstance(node, ast.ImportFrom) and (node.level or not is_builtin(node.module or "")):
            return True
        if isinstance(node, ast.Import) and not all(is_builtin(alias.name) for alias in node.names):
            return True
    return False


def read_lazy(filename: str | os.PathLike[str], seen: tuple[str, ...] = ()) -> Source:
    """Return the file, run with its bases' names and stand-ins for its imports."""
    path, text = read_text(filename)
    if path in seen:
        raise ConfigRuntimeError(f"{path} inherits from itself: {' -> '.join([*seen, path])}", at=path)
    _refuse_text_style(parsed(text, path), path, seen)
    transformer = _Transformer(path, (*seen, path))
    tree = ast.fix_missing_locations(transformer.visit(fresh_tree(text)))
    scope: dict[str, Any] = {"__file__": path, "__name__": "__config__", "__builtins__": builtins, **transformer.given}
    no_code.refuse_program(path)
    exec(compile(tree, path, "exec"), scope)
    keys = {
        name: value
        for name, value in config_keys(scope).items()
        if name not in transformer.given or value is not transformer.given[name]
    }  # fmt: skip
    imported = {name: scope[name] for name in transformer.imported if name in scope}
    values = {name: value for name, value in keys.items() if name not in imported or imported[name] is not value}
    base = transformer.base
    base.remember(places.places_in(text, path), values)
    return Source(
        ConfigDict(values),
        "\n".join([*([base.text] if base.text else []), f"{path}\n{text}"]),
        places=_places_after(text, path, base.places),
        files={**base.files, path: text},
        history=base.history,
        imported=imported,
    )  # fmt: skip


def _places_after(text: str, path: str, base: places.Places) -> places.Places:
    """Return the places after a file: assigning a name replaces those of its base, changing an inner key does not."""
    own, grown = places.places_in(text, path), places.grown_in(text, path)
    kept = {where: place for where, place in base.items() if (where[0],) not in own}
    return {**kept, **grown, **own}


def _refuse_text_style(tree: ast.Module, path: str, seen: tuple[str, ...]) -> None:
    if seen and any(assigns_base(statement) for statement in tree.body):
        raise ConfigRuntimeError(
            f"{path} is written in text style (`_base_ = ...`), {seen[-1]} in pure-Python style (`with read_base():`); "
            "the two do not go together along one chain", at=path, hint="write both in one style",
        )  # fmt: skip


def _require_read_base(node: ast.With, path: str) -> None:
    call = node.items[0].context_expr
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "read_base"):
        text = "Only `read_base` context manager can be used in the config"
        raise ConfigParsingError(text, at=f"{path}:{node.lineno}")


class _Transformer(ast.NodeTransformer):
    """Replaces imports: bases by assignments from what they say, foreign modules by stand-ins."""

    def __init__(self, path: str, seen: tuple[str, ...]) -> None:
        self.path, self.seen = path, seen
        self.base = Source(ConfigDict())
        #: Helper names that the transformed code reads.
        self.given: dict[str, Any] = {"__LazyObject__": LazyObject, "read_base": read_base}
        #: Names that imports bind.
        self.imported: set[str] = set()
        self._packages: dict[str, list[str]] = {}
        #: Bases by file: a base that two statements name is one, a change of what it says shows under both names.
        self._sources: dict[str, Source] = {}

    def visit_With(self, node: ast.With) -> Any:
        _require_read_base(node, self.path)
        made: list[ast.stmt] = []
        for statement in node.body:
            if not isinstance(statement, ast.ImportFrom):
                raise ConfigParsingError(
                    "Only `from ... import ...` statements belong into `with read_base():`",
                    at=f"{self.path}:{statement.lineno}",
                )
            made.extend(self._base_names(statement))
        return made

    def _base_names(self, node: ast.ImportFrom) -> list[ast.stmt]:
        source = self._read(node)
        self.base.include(source)
        available = {**source.imported, **dict(source.values.raw_items())}  # type: ignore[attr-defined]
        wanted = self._wanted(node, available, source)
        made = []
        for name, value in wanted.items():
            helper = f"__base_{len(self.given)}__"
            self.given[helper] = value
            made.append(_assign(name, ast.Name(helper, ast.Load()), node))
        return made

    def _read(self, node: ast.ImportFrom) -> Source:
        path = self._base_path(node)
        if path not in self._sources:
            self._sources[path] = read_lazy(path, self.seen)
        return self._sources[path]

    def _wanted(self, node: ast.ImportFrom, available: dict[str, Any], source: Source) -> dict[str, Any]:
        wanted: dict[str, Any] = {}
        for alias in node.names:
            if alias.name == "*":
                wanted.update(dict(source.values.raw_items()))  # type: ignore[attr-defined]
                wanted.update(source.imported)
                self.imported.update(source.imported)
            elif alias.name in available:
                wanted[alias.asname or alias.name] = available[alias.name]
            else:
                raise ConfigKeyError(
                    f"{alias.name!r} is not in the base {node.module}", at=f"{self.path}:{node.lineno}",
                    hint=suggest(alias.name, available),
                )  # fmt: skip
        return wanted

    def _base_path(self, node: ast.ImportFrom) -> str:
        at = f"{self.path}:{node.lineno}"
        if not node.module:
            raise ConfigParsingError("`from . import x` is not a base; name its file: `from .x import *`", at=at)
        if node.level:
            file = imported_file(self.path, node.level, node.module)
            if not os.path.isfile(file):
                raise ConfigParsingError(
                    f"{file} not found: there is no base {'.' * node.level}{node.module}", at=at, hint=near_files(file)
                )
            return file
        package, *rest = node.module.split(".")
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise ConfigImportError(f"the base {node.module} is in no installed package", at=at)
        root = next(iter(spec.submodule_search_locations))
        candidates = [os.path.join(root, folder, *rest) + ".py" for folder in ("", ".mim")]
        return next((file for file in candidates if os.path.isfile(file)), candidates[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        if not node.level and (is_builtin(node.module or "") or node.module == "__future__"):
            self.imported.update(alias.asname or alias.name for alias in node.names)
            return node
        at = f"{self.path}:{node.lineno}"
        if node.level:
            raise ConfigParsingError("a relative import must stand in `with read_base():`", at=at)
        made = []
        for alias in node.names:
            if alias.name == "*":
                raise ConfigParsingError(f"`from {node.module} import *` is only allowed in `with read_base():`", at=at)
            name = alias.asname or alias.name
            self.imported.add(name)
            made.append(_assign(name, _stand_in([node.module or "", alias.name, at]), node))
        return made

    def visit_Import(self, node: ast.Import) -> Any:
        at = f"{self.path}:{node.lineno}"
        made: list[ast.stmt] = []
        for alias in node.names:
            top = alias.name.split(".")[0]
            self.imported.add(alias.asname or top)
            if is_builtin(alias.name):
                made.append(ast.copy_location(ast.Import([alias]), node))
            elif alias.asname:
                made.append(_assign(alias.asname, _stand_in([alias.name, None, at]), node))
            else:
                modules = self._packages.setdefault(top, [])
                modules.append(alias.name)
                given: Any = top if modules == [top] else list(modules)
                made.append(_assign(top, _stand_in([given, None, at]), node))
        return made


def _stand_in(arguments: list[Any]) -> ast.expr:
    return ast.parse(f"__LazyObject__(*{arguments!r})", mode="eval").body


def _assign(name: str, value: ast.expr, node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
