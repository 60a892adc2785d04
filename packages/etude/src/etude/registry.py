"""Defines registries: named factories of one kind, and the tables in which a config's names are looked up.

A name is a registered one (``AdamW``), an alias, one with a scope (``mmdet.SomeHead``), or any dotted path to a
class or function (``my_pkg.nets.Tiny``). Entries may be lazy (``"package.module:attribute"``), so that a table can
list what comes with torch without importing it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, overload

from etude import builtins
from etude.errors import ConfigError, UserCodeError
from etude.errors.spelling import suggest, with_article

T = TypeVar("T")
Factory = Callable[..., Any]


class Registry:
    """Factories by name: ``@HOOKS.register`` adds one, ``HOOKS.build(spec)`` builds the object that a config names.

    >>> PETS = Registry("pet")
    >>> @PETS.register
    ... class Cat:
    ...     def __init__(self, lives=9): self.lives = lives
    >>> PETS.build({"type": "Cat", "lives": 7}).lives
    7
    >>> PETS.get("Cta")
    Traceback (most recent call last):
    etude.errors.ConfigError: no pet is called 'Cta'; did you mean 'Cat'?
    """

    def __init__(
        self, kind: str, *, parent: Registry | None = None, scope: str = "", base: str = "", native: bool = False
    ) -> None:
        self.kind, self.parent, self.scope = kind, parent, scope
        #: One of Étude's own tables, which ``builtins`` fills when something is first asked of it.
        self.native = native
        #: ``module:attr`` of the class that a dotted path must lead to (a subclass of); empty: anything callable.
        self.base = base
        self.children: dict[str, Registry] = {}
        self._entries: dict[str, Factory | str] = {}
        self._aliases: dict[str, str] = {}
        if parent is not None:
            if not scope:
                raise ValueError("a registry with a parent needs a scope")
            parent.children[scope] = self

    # -- filling -------------------------------------------------------------------------------------------------

    @overload
    def register(self, target: T, /) -> T: ...
    @overload
    def register(
        self, target: str | None = None, /, *, name: str | None = None, force: bool = False
    ) -> Callable[[T], T]: ...
    def register(self, target: Any = None, /, *, name: str | None = None, force: bool = False) -> Any:
        """``@R.register``, ``@R.register("name")`` or ``@R.register(name="name", force=True)``."""
        if target is None or isinstance(target, str):
            given = target if target is not None else name

            def decorate(factory: T) -> T:
                self.add(given or factory.__name__, factory, force=force)  # type: ignore[attr-defined,arg-type]
                return factory

            return decorate
        self.add(target.__name__, target, force=force)
        return target

    def add(self, name: str, factory: Factory | str, *, aliases: tuple[str, ...] = (), force: bool = False) -> None:
        """Enter ``factory`` (an object, or ``"module:attr"`` to be imported when asked for) under ``name``."""
        taken = self._entries.get(name)
        # A module that is run again registers the same class as another object.
        if taken is not None and taken is not factory and not force and origin_of(taken) != origin_of(factory):
            raise ValueError(f"{self.kind} {name!r} is taken by {origin_of(taken)}; pass force=True to replace it")
        self._entries[name] = factory
        for alias in aliases:
            self._aliases[alias] = name

    # -- asking --------------------------------------------------------------------------------------------------

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        self._fill()
        return len(self._entries)

    def get(self, name: str, *, at: str = "") -> Factory:
        """Return the factory called ``name``; raise :class:`~etude.errors.ConfigError` with similar names if there
        is none."""
        entry = self._find(name)
        if entry is None:
            entry = self._dotted(name, at) if "." in name else None
        if entry is None:
            raise ConfigError(f"no {self.kind} is called {name!r}", at=at, hint=suggest(name, self.names()))
        return resolve(entry) if isinstance(entry, str) else entry

    def origin(self, name: str) -> str:
        """Return where ``name`` comes from, as ``module:attr``, without importing it."""
        entry = self._find(name)
        return "" if entry is None else origin_of(entry)

    def names(self) -> list[str]:
        """Return every name that :meth:`get` knows here or in a parent, sorted."""
        self._fill()
        names = set(self._entries) | set(self._aliases)
        return sorted(names | set(self.parent.names() if self.parent else ()))

    def build(self, spec: Any, /, *args: Any, **extra: Any) -> Any:
        """Build what ``spec`` names: a :class:`~etude.plan.Spec`, a mapping with ``type``, or a bare name.

        ``args`` and ``extra`` are what the engine adds (``params`` of an optimizer). A ``TypeError`` of the call is
        the config's mistake and says where it is.
        """
        name, given, at = _parts(spec)
        factory = self.get(name, at=at)
        try:
            return factory(*args, **{**given, **extra})
        except ConfigError:
            raise
        except TypeError as error:
            # With a frame below this one the factory itself raised; without, the call has wrong arguments.
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise UserCodeError(f"{at or self.kind}: {name} raised TypeError: {error}") from error
            raise ConfigError(f"{self.kind} {name!r}: {error}", at=at) from error

    def summary(self) -> str:
        """Return one line per entry: name and origin."""
        self._fill()
        width = max((len(name) for name in self._entries), default=0)
        return "\n".join(f"{name:<{width}}  {origin_of(self._entries[name])}" for name in sorted(self._entries))

    # -- finding -------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        if self.native:
            load_builtins()

    def _find(self, name: str) -> Factory | str | None:
        self._fill()
        scope, _, rest = name.partition(".")
        if rest and scope in self.children:
            return self.children[scope]._find(rest)
        if rest and scope == self.scope:
            return self._find(rest)
        entry = self._entries.get(self._aliases.get(name, name))
        if entry is None and self.parent is not None:
            return self.parent._find(name)
        return entry

    def _dotted(self, name: str, at: str) -> Factory | None:
        module = name.rpartition(".")[0]
        try:
            found = walk(name)
        except ImportError as error:
            root = module.partition(".")[0]
            if (error.name or "").split(".")[0] == root:
                if importlib.util.find_spec(root) is None:
                    raise ConfigError(
                        f"{name!r}: the package {root!r} is not installed", at=at, hint=f"pip install {root}"
                    ) from None
                return None
            raise ConfigError(f"{name!r} cannot be imported: {error}", at=at) from error
        if found is None:
            return None
        self._require_kind(name, found, at)
        return found  # type: ignore[no-any-return]

    def _require_kind(self, name: str, found: Any, at: str) -> None:
        """Require that a dotted path names a class of the right kind, or a function of a module the user imported."""
        if self.base:
            base = resolve(self.base)
            if isinstance(found, type) and issubclass(found, base):
                return
        elif isinstance(found, type):
            return
        if is_factory(self.kind, name):
            return
        if getattr(found, "__module__", None) in _trusted or name.rpartition(".")[0] in _trusted:
            return
        raise ConfigError(
            f"{name!r} is not {with_article(self.kind)}",
            at=at,
            hint="list its module under `imports` if this function is meant",
        )


#: Functions that make models and datasets in packages that people know: a config may name them without ``imports``.
_FACTORIES: dict[str, tuple[str, ...]] = {
    "model": (r"timm\.create_model", r"torchvision\.models\.[\w.]+", r"transformers\.\w+\.from_(config|pretrained)"),
    "dataset": (r"datasets\.(load_dataset|load_from_disk)", r"datasets\.Dataset\.from_\w+"),
}


def is_factory(kind: str, name: str) -> bool:
    """Return whether ``name`` is a known function that makes components of this kind.

    >>> is_factory("model", "timm.create_model"), is_factory("dataset", "timm.create_model")
    (True, False)
    """
    return any(re.fullmatch(pattern, name) for pattern in _FACTORIES.get(kind, ()))


def walk(name: str) -> Any:
    """Return the object at a dotted path: as many modules as there are, then attributes; None if one is missing."""
    module, _, rest = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), rest, None)
    except ModuleNotFoundError as error:
        owner, _, attribute = module.rpartition(".")
        if not owner or error.name != module:
            raise
        return getattr(getattr(importlib.import_module(owner), attribute, None), rest, None)


_trusted: set[str] = set()


def trust(module: str) -> None:
    """Let configs name plain functions of ``module``, which the user has listed under ``imports``."""
    _trusted.add(module)


def resolve(path: str) -> Any:
    """Return the object at ``"package.module:attr"``."""
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found


def origin_of(entry: Factory | str) -> str:
    """Return ``module:attr`` of an entry, imported or not."""
    if isinstance(entry, str):
        return entry
    return f"{getattr(entry, '__module__', '?')}:{getattr(entry, '__qualname__', type(entry).__name__)}"


#: Names of modules that :func:`import_file` made.
_FILES: set[str] = set()


def import_file(path: str, name: str) -> Any:
    """Import the Python file ``path`` as module ``name``; importing it again gives the same module.

    Another user's file of that name is replaced, so that one process can train two projects. Any other module that has
    the name keeps it: half of the program may be using it.
    """
    path = os.path.abspath(path)
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == path:
        return known
    if known is not None and name not in _FILES:
        hint = "give the file another name"
        raise ConfigError(f"{path} cannot be imported: {name} is the name of another module", hint=hint)
    _FILES.add(name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _parts(spec: Any) -> tuple[str, dict[str, Any], str]:
    if isinstance(spec, str):
        return spec, {}, ""
    if isinstance(spec, Mapping):
        args = dict(spec)
        if "type" not in args:
            raise ConfigError(f"{args!r} has no `type`")
        return args.pop("type"), args, ""
    return spec.name, dict(spec.args), str(spec.at or "")


MODELS = Registry("model", base="torch.nn:Module", native=True)
LOSSES = Registry("loss", base="torch.nn:Module", native=True)
DATASETS = Registry("dataset", native=True)
TRANSFORMS = Registry("transform", native=True)
SAMPLERS = Registry("sampler", native=True)
COLLATES = Registry("collate function", native=True)
OPTIMIZERS = Registry("optimizer", base="torch.optim:Optimizer", native=True)
CLIPPINGS = Registry("clipping", native=True)
SCHEDULES = Registry("schedule", native=True)
LOOPS = Registry("loop", native=True)
UPDATES = Registry("update", native=True)
HOOKS = Registry("hook", native=True)
METRICS = Registry("metric", native=True)
WRITERS = Registry("writer", native=True)

#: Every table of the native config, by the word that ``etude list`` takes.
TABLES: dict[str, Registry] = {
    "models": MODELS, "losses": LOSSES, "datasets": DATASETS, "transforms": TRANSFORMS, "samplers": SAMPLERS,
    "collates": COLLATES, "optimizers": OPTIMIZERS, "clippings": CLIPPINGS, "schedules": SCHEDULES, "loops": LOOPS,
    "updates": UPDATES, "hooks": HOOKS, "metrics": METRICS, "writers": WRITERS,
}  # fmt: skip

_loaded = False


def load_builtins() -> None:
    """Fill the tables with what comes with Étude; again is harmless, and what a user registered stays."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    for word, entries in builtins.ENTRIES.items():
        table = TABLES[word]
        for name, target in entries.items():
            if name not in table:
                table.add(name, target)
