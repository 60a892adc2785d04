"""Relative imports between config files, which are found by path and executed anew every time."""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from glob import glob
from types import ModuleType
from typing import Any

from etude.config import no_code
from etude.config.files import imported_file
from etude.fast_dataclass import record
from etude_libai.lazy.extra import dict_config
from etude_libai.lazy.reading.errors import hinted, near
from etude_libai.lazy.reading.sketches import sketched

PREFIX = "_cfg_loader"


@record
class Flavour:
    """The differences between LiBai and detectron2 when a config is read."""

    package: str
    missing: str
    explains_folders: bool = False

    @property
    def prefix(self) -> str:
        return f"{self.package}.{PREFIX}"


LIBAI = Flavour("libai", "has to exist.")
DETECTRON2 = Flavour("detectron2", "does not exist.", explains_folders=True)


def fresh_package(flavour: Flavour, path: str) -> str:
    """Return a unique package name, so that config files do not share modules."""
    # Four digits, as the originals have.
    return f"{flavour.prefix}{os.urandom(2).hex()}.{os.path.basename(path)}"


def compiled(path: str) -> Any:
    """Compile a config file. A syntax error names the file and has the original error as its cause."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        tree = ast.parse(text, path)
    except SyntaxError as error:
        raise SyntaxError(f"Config file {path} has syntax error!") from error
    return compile(tree, path, "exec")


def execute(path: str, namespace: dict[str, Any]) -> None:
    """Run a config file in ``namespace``. An unknown name gets a hint with a similar one."""
    no_code.refuse_program(path)
    try:
        exec(compiled(path), namespace)
    except NameError as error:
        if error.name and not hasattr(error, "etude_hint"):
            hinted(error, near(error.name, [*namespace, *dir(builtins)]))
        raise


@contextmanager
def config_imports(flavour: Flavour) -> Iterator[None]:
    """Let relative imports of configs load config files, inside this context."""
    before, sketch = builtins.__import__, sketched.get()
    if sketch is not None:
        sketch.run = lambda path: vars(_run(flavour, path))

    def load(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        package = (globals or {}).get("__package__") or ""
        if globals is None or not package.startswith(flavour.prefix):
            return before(name, globals, locals, fromlist, level)
        if level == 0:
            real = partial(before, name, globals, locals, fromlist, level)
            return real() if sketch is None else sketch.importing(name, real, fromlist)
        return _config_module(flavour, _find(flavour, globals["__file__"], name, level), fromlist or ())

    # As detectron2 does: configs are found by path, need no package, and are never cached.
    builtins.__import__ = load
    try:
        yield
    finally:
        builtins.__import__ = before


def _find(flavour: Flavour, importer: str, name: str, level: int) -> str:
    path = imported_file(importer, level, name)
    stem = path.removesuffix(".py")
    if flavour.explains_folders and not os.path.isfile(path) and os.path.isdir(stem):
        raise ImportError(
            f"Cannot import from {stem}. Relative import of directories is not allowed within config files. "
            "Within a config file, relative import can only import other config files. "
        )
    if not os.path.isfile(path):
        beside = glob(os.path.join(os.path.dirname(path), "*.py"))
        hint = near(os.path.basename(path), [os.path.basename(entry) for entry in beside])
        raise hinted(ImportError(f"Cannot import name {name} from {importer}: {path} {flavour.missing}"), hint)
    return path


def _run(flavour: Flavour, path: str) -> ModuleType:
    spec = importlib.machinery.ModuleSpec(fresh_package(flavour, path), None, origin=path)
    module = importlib.util.module_from_spec(spec)
    module.__file__ = path
    module.__package__ = spec.name
    execute(path, module.__dict__)
    return module


def _config_module(flavour: Flavour, path: str, names: Any) -> ModuleType:
    module = _run(flavour, path)
    for name in _wanted(module, names):
        if name not in module.__dict__:
            missing = ImportError(f"cannot import name {name!r} from config file {path}", name=name, path=path)
            raise hinted(missing, near(name, [known for known in vars(module) if not known.startswith("_")]))
        # As in detectron2, a dict becomes a config when it is imported, and not where it is defined.
        if isinstance(module.__dict__[name], dict):
            module.__dict__[name] = dict_config(module.__dict__[name])
    return module


def _wanted(module: ModuleType, names: Any) -> list[str]:
    if "*" not in names:
        return list(names)
    public = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    module.__all__ = list(public)  # type: ignore[attr-defined]
    return list(public)
