"""Reads one config file into a Tree, by its ending; reads and replaces other small files."""

from __future__ import annotations

import json
import os
import re
import stat
from contextlib import suppress
from typing import Any

from etude.config import no_code
from etude.config.tree import Tree
from etude.errors import ConfigError
from etude.errors.spelling import nearest, suggest
from etude.plan import Place

ENDINGS = (".yaml", ".yml", ".json", ".toml", ".py")
#: A config that is larger is none: reading one takes about a hundred times its size in memory.
LARGEST = 16 << 20
#: What a script does first that runs a project on Étude, and names that only a config would assign.
_INSTALLS = ("etude.compat.install()", "compat.install()")
_OF_CONFIGS = {"_base_", "model", "data", "train", "train_dataloader", "optim", "optimizer"}


def load_file(path: str, *, asked_by: str = "") -> Tree:
    """Return the file's own values, without its bases. ``asked_by`` is the place that names the file, for messages."""
    text, shown = read_text(path, asked_by=asked_by), display(path)
    tree = _parse(text, shown, os.path.splitext(path)[1].lower())
    tree.files = {os.path.abspath(path): text}
    tree.places.setdefault((), Place(shown))  # of an empty file, for what is missing in it
    return tree


def read_text(path: str, *, asked_by: str = "") -> str:
    """Return the text of a config file. If it cannot be read, the error says why and which file was probably meant."""
    try:
        require_small_file(path, asked_by=asked_by)
        # Editors on Windows begin a file with a byte order mark.
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except FileNotFoundError:
        folder = os.path.dirname(path) or "."
        raise ConfigError(f"there is no file {display(path)}", at=asked_by, hint=_neighbours(path, folder)) from None
    except IsADirectoryError:
        hint = _inside(path) or "name a config file in it"
        raise ConfigError(f"{display(path)} is a folder", at=asked_by, hint=hint) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{display(path)} is not UTF-8 text (byte {error.start})", at=asked_by) from None
    except OSError as error:
        raise ConfigError(f"{display(path)} cannot be read: {error.strerror}", at=asked_by) from None


def require_small_file(path: str, *, asked_by: str = "") -> None:
    """Raise for a config that is no file or is too large: a pipe would wait for ever, a device has no end."""
    facts = os.stat(path)
    if not stat.S_ISREG(facts.st_mode) and not stat.S_ISDIR(facts.st_mode):
        raise ConfigError(f"{display(path)} is no file, but a {_kind_of(facts.st_mode)}", at=asked_by)
    if facts.st_size > LARGEST:
        raise ConfigError(f"{display(path)} has {facts.st_size >> 20} MB: a config has at most 16", at=asked_by)


def _kind_of(mode: int) -> str:
    kinds = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}
    return kinds.get(stat.S_IFMT(mode), "special file")


def table_beside(module: str, name: str) -> Any:
    """Return what the JSON file ``name`` in the folder of a module says; ``module`` is its ``__file__``."""
    with open(os.path.join(os.path.dirname(module), name), encoding="utf-8") as file:
        return json.load(file)


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the object in ``path``; an empty one where it is missing, cut off or of another kind."""
    try:
        found = json.loads(read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def read_bytes(path: str | os.PathLike[str], most: int = 64 << 20) -> bytes:
    """Return the content of a file. What is no file, or has more than ``most`` bytes, is an ``OSError``."""
    # A pipe would wait for somebody to write.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb", buffering=0) as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > most:
            raise OSError(f"{os.fspath(path)} is no file of at most {most} bytes")
        return file.readall()


def replace_text(path: str | os.PathLike[str], text: str, *, mode: int = 0o666) -> None:
    """Write a file so that a reader sees all of the old text or all of the new one. ``mode``: its permissions, from
    which the umask takes some."""
    folder, name = os.path.split(path)
    part = os.path.join(folder, f".{name}.part{os.getpid()}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(part, flags, mode), "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(part, path)
    except OSError:
        with suppress(OSError):
            os.unlink(part)
        raise


def display(path: str) -> str:
    """Return ``path`` as messages show it: relative if it is below the current folder."""
    absolute = os.path.abspath(path)
    relative = os.path.relpath(absolute)
    return absolute if relative.startswith("..") else relative


def imported_file(importer: str, level: int, module: str) -> str:
    """Return the path that ``from ..a.b import c``, of level 2, names in the file ``importer``."""
    folder = importer
    for _ in range(level):
        folder = os.path.dirname(folder)
    return os.path.join(folder, *module.split(".")) + ".py"


def _parse(text: str, shown: str, ending: str) -> Tree:
    if ending in (".yaml", ".yml"):
        from etude.config.formats.from_yaml import parse_yaml

        return parse_yaml(text, shown)
    if ending == ".json":
        from etude.config.formats.from_json import parse_json

        return parse_json(text, shown)
    if ending == ".toml":
        from etude.config.formats.from_toml import parse_toml

        return parse_toml(text, shown)
    if ending == ".py":
        no_code.refuse_program(shown)
        from etude.config.formats.from_python import parse_python

        return parse_python(text, shown)
    raise ConfigError(f"a config ends in {', '.join(ENDINGS)}, not in {ending or 'nothing'!r}", at=shown)


def _inside(folder: str) -> str:
    """Return the config to name instead of the folder that it is in; empty where there is none, or several."""
    found = [name for name in os.listdir(folder) if name.endswith((".yaml", ".yml", ".toml"))]
    return f"did you mean {display(os.path.join(folder, found[0]))!r}?" if len(found) == 1 else ""


def _neighbours(path: str, folder: str) -> str:
    if not os.path.isdir(folder):
        return f"there is no folder {folder} either"
    asked, ending = os.path.splitext(os.path.basename(path))
    names = [name for name in os.listdir(folder) if name.endswith(ENDINGS)]
    stems = {os.path.splitext(name)[0]: name for name in sorted(names, key=lambda name: name.endswith(ending))}
    near = nearest(asked, list(stems))  # the ending makes short names alike
    if near:
        return f"did you mean {stems[near]!r}?"
    return suggest("", names, most=5).replace("known:", "files here:", 1) if names else ""


def script_line(text: str) -> int:
    """Return the line that shows ``text`` to be a script and no config; 0 if none does.

    >>> script_line("import etude.compat\\netude.compat.install()\\n"), script_line("model = 'MLP'\\n")
    (2, 0)
    """
    if not re.search(r"compat\b[\s\S]*\binstall\(|__main__", text):
        return 0
    import ast

    from etude.config.formats.from_python import assigned

    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return 0
    names = assigned(module)
    for statement in module.body:
        if isinstance(statement, ast.Expr) and ast.unparse(statement) in _INSTALLS:
            return statement.lineno
        if isinstance(statement, ast.If) and "__main__" in ast.unparse(statement.test) and not {*names} & _OF_CONFIGS:
            return statement.lineno
    return 0
