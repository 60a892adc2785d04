"""One config file: its text, what is substituted in it, its own values, and where each key stands."""

from __future__ import annotations

import ast
import json
import os
import re
import types
import warnings
from collections.abc import Mapping
from typing import Any

from etude.config import no_code
from etude.config.files import require_small_file
from etude.config.tree import Path
from etude.errors import UserError
from etude.errors.spelling import nearest
from etude.fast_dataclass import field, record
from etude.plan import Place
from etude_openmm.shared.errors import ConfigFileError, ConfigFileMissing, ConfigKeyError, ConfigTypeError
from etude_openmm.shared.reading.places import Places, value_at
from etude_openmm.shared.reading.syntax import BASE, assigns_base, tree_of

SUFFIXES = (".py", ".json", ".yaml", ".yml")
DEPRECATION = "_deprecation_"

_BASE_VARIABLE = r"\{\{\s*_base_\.([\w.]+)\s*\}\}"
_ENV_VARIABLE = r"\{\{['\"]?\s*\$\s*(\w+)\s*:\s*(\S*?)\s*['\"]?\}\}"


@record(frozen=False)
class Source:
    """What a chain of files comes to: values, the joined text, used environment variables, places, and the files."""

    values: dict[Any, Any]
    text: str = ""
    env: dict[str, str] = field(default_factory=dict)
    places: Places = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    #: For a path, what each file set there, oldest first.
    history: dict[Path, list[tuple[Place, Any]]] = field(default_factory=dict)
    #: Names that a pure-Python config imported; no keys of it, but readable.
    imported: dict[str, Any] = field(default_factory=dict)

    def remember(self, where: Places, values: Any) -> None:
        """Note what one file set, after everything that was noted before."""
        for path, place in where.items():
            self.history.setdefault(path, []).append((place, value_at(values, path)))

    def include(self, base: Source) -> None:
        """Take in a base: its text, places and files, after those of the bases before it."""
        self.text = f"{self.text}\n{base.text}" if self.text else base.text
        self.env.update(base.env)
        self.places.update(base.places)
        self.files.update(base.files)
        for path, notes in base.history.items():
            self.history.setdefault(path, []).extend(notes)


def read_text(filename: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the absolute path of a config file and its text."""
    path = os.path.abspath(os.path.expanduser(os.fspath(filename)))
    if not os.path.isfile(path):
        raise ConfigFileMissing(f'file "{path}" does not exist', hint=near_files(path))
    if os.path.splitext(path)[1] not in SUFFIXES:
        raise ConfigFileError("only py/yml/yaml/json files are supported as configs", at=path)
    require_small_file(path)
    with open(path, encoding="utf-8") as file:
        return path, file.read()


def near_files(path: str, endings: tuple[str, ...] = SUFFIXES) -> str:
    """Return a hint for a file that does not exist: the one beside it that is called most like it."""
    folder, name = os.path.split(path)
    where = os.path.expanduser(folder) or "."
    names = os.listdir(where) if os.path.isdir(where) else []
    stems = {os.path.splitext(entry)[0]: entry for entry in sorted(names) if entry.endswith(endings)}
    near = stems.get(nearest(os.path.splitext(name)[0], list(stems)) or "")
    return f"did you mean {near!r}?" if near else ""


def is_missing(file: Any) -> bool:
    """Return whether a checkpoint is a file that is not there; what has a scheme lies elsewhere."""
    return isinstance(file, str) and bool(file) and "://" not in file and not os.path.exists(os.path.expanduser(file))


def near_checkpoint(file: str) -> str:
    """Return a hint for a checkpoint that is not there."""
    return near_files(file, (os.path.splitext(file)[1] or ".pth",))


class NoWeights(UserError, FileNotFoundError):
    """The weights of a ``Pretrained`` rule do not exist."""


def require_weights(checkpoint: str) -> None:
    """Raise :class:`NoWeights` if the checkpoint of a ``Pretrained`` rule is missing."""
    if lack := missing_weights(checkpoint):
        raise NoWeights("; ".join(filter(None, (f"checkpoint of a Pretrained init_cfg: {lack[0]}", lack[1]))))


def missing_weights(file: Any) -> tuple[str, str] | None:
    """Say what is wrong with the weights that a ``Pretrained`` rule names, and what to do; None if nothing is."""
    if file == "":  # the benchmarks of MMSelfSup and MMPretrain leave the place open
        return "no file is named", "name one, or leave `init_cfg` out"
    return (f"there is no file {file!r}", near_checkpoint(file)) if is_missing(file) else None


def with_predefined(text: str, path: str) -> str:
    """Return the text with ``{{ fileDirname }}`` and the other predefined variables replaced."""
    if "{{" not in text:
        return text
    stem, extension = os.path.splitext(os.path.basename(path))
    values = {
        "fileDirname": os.path.dirname(path), "fileBasename": os.path.basename(path),
        "fileBasenameNoExtension": stem, "fileExtname": extension,
    }  # fmt: skip
    for name, value in values.items():
        # Backslashes of Windows paths would be escapes in the literal that the path stands in.
        text = re.sub(r"\{\{\s*" + name + r"\s*\}\}", lambda _, v=value: v.replace("\\", "/"), text)  # type: ignore[misc]
    return text


def with_environment(text: str, path: str) -> tuple[str, dict[str, str]]:
    """Return the text with ``{{$NAME:default}}`` replaced, and the environment variables that were used."""
    used: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        if name in os.environ:
            value = used[name] = os.environ[name]
        if not value:
            line = text.count("\n", 0, match.start()) + 1
            raise ConfigKeyError(
                f"`{name}` cannot be found in `os.environ`", at=f"{path}:{line}",
                hint=f"set the environment variable {name!r} or give a default value",
            )  # fmt: skip
        return value

    return re.sub(_ENV_VARIABLE, replace, text) if "{{" in text else text, used


def with_placeholders(text: str) -> tuple[str, dict[str, str]]:
    """Return the text with unique strings in place of ``{{ _base_.a.b }}``, and the path of each string."""
    names: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        mark = f"_{match[1]}_{os.urandom(3).hex()}"
        names[mark] = match[1]
        return f'"{mark}"'

    return re.sub(_BASE_VARIABLE, replace, text) if "{{" in text else text, names


def filled(value: Any, names: Mapping[str, str], base: Any, path: str) -> Any:
    """Return ``value`` with placeholders replaced by the values of the bases."""
    if isinstance(value, dict):
        for key, item in dict.items(value):
            dict.__setitem__(value, key, filled(item, names, base, path))
        return value
    if type(value) in (list, tuple):
        return type(value)(filled(item, names, base, path) for item in value)
    if isinstance(value, str) and value in names:
        return _from_base(base, names[value], path)
    return value


def _from_base(base: Any, dotted: str, path: str) -> Any:
    found = base
    for part in dotted.split("."):
        if not isinstance(found, dict) or part not in found:
            from etude.errors.spelling import suggest

            known = found if isinstance(found, dict) else ()
            raise ConfigKeyError(f"_base_.{dotted}: the bases have no {part!r}", at=path, hint=suggest(part, known))
        found = dict.__getitem__(found, part)
    return found


def own_values(text: str, path: str, base: Any = None) -> dict[Any, Any]:
    """Return what the file itself says. Python is run, with ``_base_`` as the united bases when they are given."""
    if not path.endswith(".py"):
        return _data_values(text, path)
    no_code.refuse_program(path)
    namespace: dict[str, Any] = {"__file__": path, "__name__": "__config__"}
    tree = parsed(text, path)
    if base is not None:
        own = [statement for statement in tree.body if not assigns_base(statement)]
        tree = ast.Module(own, tree.type_ignores)
        namespace[BASE] = base
    exec(compile(tree, path, "exec"), namespace)
    if base is not None:
        namespace.pop(BASE, None)
    return config_keys(namespace)


def _data_values(text: str, path: str) -> dict[Any, Any]:
    if path.endswith(".json"):
        values = json.loads(text)
    else:
        import yaml

        values = yaml.safe_load(text)
    if values is not None and not isinstance(values, dict):
        raise ConfigTypeError(f"a config is a mapping of keys, this is a {type(values).__name__}", at=path)
    return values or {}


def parsed(text: str, path: str) -> ast.Module:
    """Return the syntax tree; a mistake is reported for the file that the user wrote."""
    try:
        return tree_of(text)
    except SyntaxError as error:
        error.filename = path
        raise SyntaxError(f"There are syntax errors in config file {path}: {error}") from error


def config_keys(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of a module that are config keys: no dunders, modules or functions."""
    hidden = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    return {
        name: value
        for name, value in namespace.items()
        if not name.startswith("__") and not isinstance(value, hidden)
    }  # fmt: skip


def warn_if_deprecated(values: dict[Any, Any], path: str) -> None:
    """Remove ``_deprecation_``, and warn with the replacement that it names."""
    note = values.pop(DEPRECATION, None)
    if note is None:
        return
    text = f"The config file {path} will be deprecated in the future."
    if "expected" in note:
        text += f" Please use {note['expected']} instead."
    if "reference" in note:
        text += f" More information can be found at {note['reference']}"
    warnings.warn(text, DeprecationWarning, stacklevel=2)


def listed(bases: Any, path: str) -> list[str]:
    """Return ``_base_`` as a list of names."""
    names = [bases] if isinstance(bases, str) else list(bases) if isinstance(bases, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigTypeError(f"`_base_` is a file name or a list of them, not {bases!r}", at=path)
    return names


def unite(bases: list[tuple[str, dict[Any, Any]]], path: str, start: Any) -> Any:
    """Return several bases as one. Raises an error if two of them have the same key."""
    for name, values in bases:
        twice = sorted(str(key) for key in start.keys() & values.keys())
        if twice:
            raise ConfigKeyError(
                f"Duplicate key is not allowed among bases. Duplicate keys: {', '.join(twice)}", at=path,
                hint=f"{name} repeats what a base before it says: let one of them inherit from the other",
            )  # fmt: skip
        start.update(values)
    return start
