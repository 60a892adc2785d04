"""Finds file and line of each key of a lazy config by parsing the files, without running them."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator

from etude.config.files import display, imported_file
from etude.config.tree import Path
from etude.dialects import ownership
from etude.fast_dataclass import field, record
from etude.plan import NOWHERE, Place

#: The folder of the configs that come with Étude.
CONFIGS = os.path.join(os.path.dirname(__file__), "configs")

_DEEPEST = 8
#: Names of folders that hold configs.
_NAMES = ("configs", "config")


def common_config(path: str) -> str:
    """Return the file that ``get_config(path)`` reads: of an installed or checked out LiBai, else Étude's."""
    package = ownership.original("libai")
    theirs = [os.path.join(package, "config", "configs"), os.path.join(package, "..", "configs")] if package else []
    files = [os.path.normpath(os.path.join(folder, path)) for folder in (*theirs, CONFIGS)]
    return next(filter(os.path.isfile, files), "")


def project_folders(path: str) -> list[str]:
    """Return the folders that a config may import from: its own, the current one, and that of its project.

    The project is the folder above ``configs``, where the train script is: Python adds a script's folder to the path.
    """
    own = os.path.dirname(os.path.abspath(path))
    parts = own.split(os.sep)
    projects = [os.sep.join(parts[:n]) for n, part in enumerate(parts) if part in _NAMES]
    return list(dict.fromkeys([own, *projects, os.getcwd()]))


def survey_files(path: str) -> tuple[dict[Path, Place], dict[str, str]]:
    """Return the place of every key, as far as the syntax shows it, and the texts of all files that were read."""
    files: dict[str, str] = {}
    return _File(os.path.abspath(path), files, _DEEPEST).places, files


class _File:
    """The places in one config file. Later statements replace earlier ones about the same key."""

    def __init__(self, path: str, files: dict[str, str], depth: int) -> None:
        self.path, self.files, self.depth = path, files, depth
        self.shown = display(path)
        self.places: dict[Path, Place] = {}
        try:
            with open(path, encoding="utf-8") as file:
                files[path] = file.read()
            body = ast.parse(files[path]).body if path.endswith(".py") else []
        except (OSError, SyntaxError, UnicodeDecodeError):
            return
        for statement in body:
            self._read(statement)

    def _read(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                way = _path_of(target)
                if way:
                    self._set(way, statement.value, target.lineno)
        elif isinstance(statement, ast.Delete):
            for way in filter(None, map(_path_of, statement.targets)):
                self._forget(way)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            self._update(statement.value)
        elif isinstance(statement, ast.ImportFrom) and statement.module and self.depth:
            self._follow(statement)

    def _update(self, call: ast.Call) -> None:
        """Read ``train.update(dict(log_period=5))``, also with keywords, or ``OmegaConf.update(cfg, "a.b", 3)``."""
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("update", "merge_with"):
            return
        above = _path_of(call.func.value)
        if above == ("OmegaConf",):
            first, key, value = (*call.args, None, None, None)[:3]
            above = _path_of(first) if first is not None else ()
            if above and isinstance(key, ast.Constant) and isinstance(key.value, str) and value is not None:
                self._set((*above, *key.value.split(".")), value, call.lineno)
            return
        put = self._set if call.func.attr == "update" else self._note
        for given in (*call.args, call) if above else ():
            for name, value in _children(given):
                put((*above, name), value, value.lineno)

    def _set(self, way: Path, value: ast.expr, line: int) -> None:
        self._forget(way)
        self._note(way, value, line)

    def _follow(self, statement: ast.ImportFrom) -> None:
        """Copy the places of an imported config. An absolute import is one of a config if a folder is called so."""
        module = str(statement.module)
        if statement.level:
            files = [imported_file(self.path, statement.level, module)]
        else:
            folders = project_folders(self.path) if {*module.split(".")} & set(_NAMES) else []
            files = [imported_file(os.path.join(folder, ""), 1, module) for folder in folders]
        path = next(filter(os.path.isfile, files), "")
        if not path:
            return
        other = _File(path, self.files, self.depth - 1).places
        for name in statement.names:
            self._adopt(other, (name.name,), (name.asname or name.name,))

    def _adopt(self, other: dict[Path, Place], theirs: Path, ours: Path) -> None:
        self._forget(ours)
        for way, place in other.items():
            if way[: len(theirs)] == theirs:
                self.places[ours + way[len(theirs) :]] = place

    def _forget(self, way: Path) -> None:
        for known in [known for known in self.places if known[: len(way)] == way]:
            del self.places[known]

    def _note(self, way: Path, value: ast.expr, line: int) -> None:
        packaged = _common_config_keys(value)
        if packaged is not None and self.depth:
            path, keys = packaged
            self._adopt(_File(path, self.files, self.depth - 1).places, keys, way)
        self.places[way] = Place(self.shown, line, ".".join(map(str, way)))
        for key, child in _children(value):
            self._note((*way, key), child, child.lineno)


@record(frozen=False)
class Origins:
    """Records which config this process has read and how it was changed, so that a later error can name the line.

    A script reads its config, changes it and builds parts in separate calls. Only the file that was read last and the
    overrides since are recorded; the file is parsed only when there is an error.
    """

    file: str = ""
    overrides: list[str] = field(default_factory=list)
    #: Override → the path of the first new key, for overrides that add one.
    new: dict[str, Path] = field(default_factory=dict)

    def read(self, file: str) -> None:
        self.file, self.overrides, self.new = file, [], {}

    def changed(self, text: str, new: Path) -> None:
        self.overrides.append(text)
        if new:
            self.new[text] = new

    def places(self) -> dict[Path, Place]:
        """Return the place of every key; for a changed key that of the override."""
        found = survey_files(self.file)[0] if self.file else {}
        for text in self.overrides:
            found[way_of(key_of(text))] = Place(f"override '{text}'", 0, key_of(text))
        return found

    def place(self, way: Path) -> Place:
        """Return the place of the value at ``way``, or of the nearest key above it."""
        places = self.places()
        return next((places[way[:n]] for n in range(len(way), 0, -1) if way[:n] in places), NOWHERE)


#: The origins of this process's config.
ORIGINS = Origins()


def key_of(text: str) -> str:
    """Return the key of an override, without ``+`` and ``~``."""
    return text.lstrip("+~").partition("=")[0]


def way_of(key: str) -> Path:
    """Return ``dataloader.test[0].dataset`` or ``dataloader.test.0.dataset`` as a path."""
    parts: Iterable[str] = key.replace("[", ".").replace("]", "").split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts if part)


# -- syntax ------------------------------------------------------------------------------------------------------------


def _path_of(target: ast.expr) -> Path:
    """Return ``train.evaluation.eval_period`` or ``dataloader.test[0].dataset`` as a path; empty for anything else."""
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, ast.Attribute):
        above = _path_of(target.value)
        return (*above, target.attr) if above else ()
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        above = _path_of(target.value)
        key = target.slice.value
        return (*above, key) if above and isinstance(key, str | int) else ()
    return ()


def _children(value: ast.expr) -> Iterator[tuple[str | int, ast.expr]]:
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg is not None:
                yield keyword.arg, keyword.value
    elif isinstance(value, ast.Dict):
        for key, item in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str | int):
                yield key.value, item
    elif isinstance(value, ast.List | ast.Tuple):
        yield from enumerate(value.elts)


def _common_config_keys(value: ast.expr) -> tuple[str, Path] | None:
    """Return the file and the keys of ``get_config("common/train.py").train``; None for anything else."""
    keys: Path = ()
    while isinstance(value, ast.Attribute):
        keys, value = (value.attr, *keys), value.value
    if not isinstance(value, ast.Call) or not value.args or not isinstance(value.args[0], ast.Constant):
        return None
    name = value.func.id if isinstance(value.func, ast.Name) else getattr(value.func, "attr", "")
    path = value.args[0].value
    file = common_config(path) if name == "get_config" and isinstance(path, str) else ""
    return (file, keys) if file else None
