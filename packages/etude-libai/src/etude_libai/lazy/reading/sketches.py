"""Reads a config without importing the modules that it names, because such an import may load a whole project.

Everything that the config imports is then a :class:`Sketch`: a name that can be called, has attributes and can be
written into a lazy call. A name that the source of a module does not have raises the error of an import. A name to
which a user module assigns a value (``from configs.common.train import train``) is that value: such a module is a
config too, and runs the same way.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from etude.config import no_code
from etude.config.imports import locate
from etude.dialects import ownership
from etude.inspection import signatures
from etude.plan import NOWHERE
from etude_libai.lazy.extra import dict_config
from etude_libai.lazy.reading import light
from etude_libai.lazy.reading.errors import hinted, is_users, near
from etude_libai.names import FALLBACK, MODULES

#: Packages that are fast to import, and that a config may compute with.
_LIGHT = (*sys.stdlib_module_names, "omegaconf", "etude", "etude_libai", "yaml", "numpy")
#: Runs a file as a config, and returns its names.
Run = Callable[[str], dict[str, Any]]
#: Packages whose modules are never run as configs.
FAMILY = ("libai", "detectron2", "oneflow", "flowvision", "torch", "torchvision")
_LAZY = ("etude_libai.lazy.", "etude_libai.args")


class _Base:
    """The base of a class in the config, in place of one that was not imported. It takes any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...


class Sketch:
    """Stands for a name of a module that was not imported."""

    def __init__(self, module: str, name: str = "") -> None:
        self.__module__, self.__qualname__, self.__name__ = module, name, name.rpartition(".")[2]

    @property
    def dotted(self) -> str:
        return f"{self.__module__}.{self.__qualname__}" if self.__qualname__ else self.__module__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Sketch(self.__module__, f"{self.__qualname__}.{name}".lstrip("."))

    def __call__(self, *args: Any, **kwargs: Any) -> Sketch:
        return _computed(self)

    def __iter__(self) -> Iterator[Any]:
        _computed(self)
        return iter(())

    def __getitem__(self, key: Any) -> Sketch:
        return _computed(self)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Accept a value; nothing reads it."""

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (_Base,)

    def __deepcopy__(self, memo: Any) -> Sketch:
        return self

    def __repr__(self) -> str:
        return self.dotted


def _computed(self: Sketch, *others: Any) -> Sketch:
    """Return the unknown result of a call of a sketch, or of arithmetic with it."""
    if (reading := sketched.get()) is not None:
        reading.computed = True
    return Sketch(self.__module__, f"{self.__qualname__}()")


def is_computed(value: Any) -> bool:
    return isinstance(value, Sketch) and value.__qualname__.endswith("()")


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Sketch, f"__{_name}__", _computed)
    setattr(Sketch, f"__r{_name}__", _computed)


class Module(ModuleType):
    """Stands for a module that was not imported."""

    def __init__(self, name: str, read: Sketched) -> None:
        super().__init__(name)
        self.__dict__["_read"] = read

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = f"{self.__name__}.{name}"
        table = MODULES.get(self.__name__, {})
        if table.get(name, "").startswith(_LAZY):
            target, _, attribute = table[name].partition(":")
            return getattr(importlib.import_module(target), attribute)
        if (self.__name__, name) == ("detectron2.model_zoo", "get_config"):
            return self._read.of_model_zoo
        if name in table:
            return Sketch(self.__name__, name)
        if _exists(module):
            return Module(module, self._read)
        if _is_ours(self.__name__):
            return getattr(importlib.import_module(self.__name__), name)  # raises an error with a suggestion
        _require(self.__name__, name)
        return self._read.value(self.__name__, name)


class Sketched:
    """The state of reading one config without imports. Each module runs once, as an imported one does."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, Any]] = {}
        self.run: Run | None = None  # set when the config runs
        self.lost = False  # whether a section of the config is the result of an unknown call
        self.computed = False  # whether the config called a sketch or computed with it

    def importing(self, name: str, real: Callable[[], Any], names: Any) -> Any:
        """Return the result of an import statement: a sketch, or the ``real`` module if it is fast to import."""
        top = name.partition(".")[0]
        if top == "omegaconf" and light.light.get():
            return light.Module(name)
        if top in _LIGHT or not _exists(name):
            return real()
        _require_imports(name)
        return Module(name if names else top, self)

    def of_model_zoo(self, config_path: str, trained: bool = False) -> Any:
        """Return a config that comes with detectron2, as ``detectron2.model_zoo.get_config`` does."""
        package = ownership.original("detectron2") or ""
        folders = (os.path.join(package, "model_zoo", "configs"), os.path.join(package, "..", "configs"))
        files = (os.path.normpath(os.path.join(folder, config_path)) for folder in folders)
        file = next(filter(os.path.isfile, files), None)
        if file is None or self.run is None or not file.endswith(".py"):
            return Sketch("detectron2.model_zoo", "get_config()")
        names = self.run(file).items()
        return dict_config({key: value for key, value in names if isinstance(value, Mapping) and key[0] != "_"})

    def value(self, module: str, name: str) -> Any:
        """Return the value that a user module assigns to ``name``; a sketch of anything else."""
        source = signatures.find_source(module, tuple(sys.path))
        assigned = source.names.get(name) if source and is_users(source.file) else None
        known = isinstance(assigned, ast.expr | str) and module.partition(".")[0] not in FAMILY
        if source is None or self.run is None or not known:
            return Sketch(module, name)
        if isinstance(assigned, str):  # the module imports it from another one
            origin, _, inner = assigned.partition(":")
            return getattr(Module(origin, self), inner) if inner else Module(origin, self)
        if module not in self.modules:
            try:
                self.modules[module] = self.run(source.file)
            except (ImportError, NameError, SyntaxError):
                raise
            except Exception:  # the module computes with a sketch
                self.modules[module] = {}
        return self.modules[module].get(name, Sketch(module, name))


#: Set while configs are read without imports.
sketched: ContextVar[Sketched | None] = ContextVar("sketched", default=None)


@contextmanager
def asleep(*, lightly: bool) -> Iterator[Sketched]:
    """Read configs without imports inside this context; with ``lightly``, without OmegaConf, too."""
    reading = Sketched()
    tokens = sketched.set(reading), light.light.set(lightly)
    try:
        yield reading
    finally:
        sketched.reset(tokens[0])
        light.light.reset(tokens[1])


class Unread(str):
    """The name of a value that is unknown, because it was not imported. It has the form of an interpolation."""

    @property
    def name(self) -> str:
        return self[2:-1]


def as_text(value: Any) -> Any:
    """Replace unknown values by plain names, because OmegaConf would try to resolve them."""
    if isinstance(value, Unread):
        return value.name
    if isinstance(value, Mapping):
        return {key: as_text(item) for key, item in value.items()}
    return [as_text(item) for item in value] if isinstance(value, list) else value


def by_name(value: Any) -> Any:
    """Return the values of a config with names in place of sketches."""
    if isinstance(value, Sketch):
        return Unread(f"${{{value.dotted}}}")
    if isinstance(value, Mapping):
        targets = {"_target_": value["_target_"].dotted} if isinstance(value.get("_target_"), Sketch) else {}
        return {key: by_name(item) for key, item in value.items()} | targets
    return [by_name(item) for item in value] if isinstance(value, list) else value


def _exists(module: str) -> bool:
    """Return whether a module can be imported: Étude's, one with a file, or a namespace package."""
    if module in MODULES or signatures.has_module(module, tuple(sys.path)):
        return True
    return any(os.path.isdir(os.path.join(folder, *module.split("."))) for folder in sys.path)


def _is_ours(module: str) -> bool:
    """Return whether a module is only Étude's: importing it is cheap then."""
    top = module.partition(".")[0]
    return module in MODULES and top not in FALLBACK and ownership.original(top) is None


def _require_imports(module: str) -> None:
    """Raise the error that importing a user module would raise: it cannot be parsed, or a package is not installed.

    Not in a checkout of LiBai or detectron2: the check of its projects warns about missing packages itself.
    """
    if any(ownership.original(package) is not None for package in ("libai", "detectron2")):
        return
    found = locate(module, NOWHERE, os.getcwd())
    file = found.file if found is not None else None
    if not file or not is_users(file) or not file.endswith(".py") or module.partition(".")[0] in FAMILY:
        return
    if no_code.is_forbidden():
        return
    with open(file, encoding="utf-8") as text:
        body = ast.parse(text.read(), file).body
    for statement, _ in absent_imports(body, os.path.dirname(file)):
        exec(compile(ast.Module([statement], []), file, "exec"), {})  # raises Python's error with this line


def absent_imports(body: Iterable[ast.stmt], folder: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the import statements at the top of a module whose package is not installed, and that package.

    Imports below ``try`` and ``if`` are optional and are not checked.
    """
    for statement in body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            names = [statement.module]
        else:
            continue
        for top in dict.fromkeys(name.partition(".")[0] for name in names):
            known = top in sys.stdlib_module_names or top in MODULES or os.path.isdir(os.path.join(os.getcwd(), top))
            if not known and locate(top, NOWHERE, folder) is None:
                yield statement, top


def _require(module: str, name: str) -> None:
    """Raise the error of an import for a name that the module's source does not have."""
    source = signatures.find_source(module, tuple(sys.path))
    if source is None or source.stars or {name, "__getattr__"} & set(source.names):
        return
    error = ImportError(f"cannot import name {name!r} from {module!r} ({source.file})", name=module)
    raise hinted(error, near(name, [known for known in source.names if not known.startswith("_")]))
