"""The base of mmcv 1.x's and MMEngine's ``Registry``: a tree of tables of callables."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, ClassVar

from etude.dialects import ownership
from etude.errors.own_code import is_own
from etude.registry import resolve
from etude_openmm.shared.errors import ConfigKeyError, ConfigTypeError
from etude_openmm.shared.project_names import remedy

Entry = Callable[..., Any]

#: Every registry of this process.
EVERY: weakref.WeakSet[RegistryTree] = weakref.WeakSet()


_HERE = __name__.rpartition(".")[0]


class RegistryTree:
    """Holds entries by name, a parent, and children by scope. Subclasses define how a name is looked up."""

    #: The description of allowed entries in the error of ``register_module``.
    wants: ClassVar[str] = "Callable"

    def __init__(
        self, name: str, build_func: Entry | None = None, parent: Any = None, scope: str | None = None
    ) -> None:
        EVERY.add(self)
        self._name = name
        self._module_dict: dict[str, Any] = {}
        self._lazy: dict[str, str] = {}
        self._children: dict[str, Any] = {}
        if scope is not None and not isinstance(scope, str):
            raise AssertionError(f"scope must be a string or None, but got {type(scope)}")
        self._scope = self.infer_scope() if scope is None else scope
        self.parent: Any = None
        if parent is not None:
            if not isinstance(parent, type(self)):
                raise AssertionError(f"parent must be a Registry or None, but got {type(parent)}")
            parent._add_child(self)
            self.parent = parent
        self.build_func: Entry = build_func or (parent.build_func if parent is not None else self._default_build())

    def _default_build(self) -> Entry:
        raise NotImplementedError

    # -- properties ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._module_dict)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    @property
    def name(self) -> str:
        return self._name

    @property
    def scope(self) -> str:
        return self._scope

    @property
    def module_dict(self) -> dict[str, Any]:
        return self._module_dict

    @property
    def registered(self) -> dict[str, Any]:
        """Return the entries that are registered so far, without lazy ones that are not imported yet."""
        return self._module_dict

    @property
    def children(self) -> dict[str, Any]:
        return self._children

    @property
    def root(self) -> Any:
        return self._get_root_registry()

    # -- lookup --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Any:
        raise NotImplementedError

    def known(self) -> list[str]:
        """Return every name that a key without a scope can have here, for suggestions."""
        return sorted({*self._module_dict, *self._lazy, *(self.parent.known() if self.parent is not None else ())})

    def hint(self, key: str) -> str:
        return remedy(key.rpartition(".")[2], self.known())

    def entry(self, kind: Any) -> Any:
        """Return the entry for the ``type`` of a config, which is a name, or a class or function itself."""
        if isinstance(kind, str):
            found = self.get(kind)
            if found is None:
                raise ConfigKeyError(
                    f"{kind} is not in the {self._title} registry",
                    hint=f"{self.hint(kind)} (is the module that defines it imported, e.g. by custom_imports?)",
                )
            return found
        if self._accepts(kind):
            return kind
        raise ConfigTypeError(f"type must be a str or valid type, but got {type(kind)}")

    @property
    def _title(self) -> str:
        """Return the name of this registry in messages."""
        return self._name

    def build(self, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        """Build the object of ``cfg`` with this registry's build function."""
        return self.build_func(cfg, *args, **kwargs, registry=self)

    def _own(self, key: str) -> Any:
        """Return the entry of this table, without parents; a lazy one is imported now."""
        found = self._module_dict.get(key)
        if found is None and key in self._lazy:
            found = resolve(self._lazy[key])
            self._module_dict.setdefault(key, found)
        return found

    def _get_root_registry(self) -> Any:
        root = self
        while root.parent is not None:
            root = root.parent
        return root

    @staticmethod
    def infer_scope() -> str:
        """Return the top-level package of the module that makes the registry."""
        # As in the originals, the default scope is the package whose code makes the registry.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(_HERE):
            frame = frame.f_back
        name = frame.f_globals.get("__name__", "__main__") if frame is not None else "__main__"
        return str(name).split(".")[0]

    @staticmethod
    def split_scope_key(key: str) -> tuple[str | None, str]:
        """Split ``"mmdet.Net"`` into ``("mmdet", "Net")``, and ``"Net"`` into ``(None, "Net")``."""
        scope, dot, rest = key.partition(".")
        return (scope, rest) if dot else (None, key)

    def _add_child(self, registry: Any) -> None:
        if not isinstance(registry, RegistryTree):
            raise AssertionError(f"a child must be a Registry, but got {type(registry)}")
        if registry.scope in self._children:
            raise AssertionError(f"scope {registry.scope} exists in {self.name} registry")
        self._children[registry.scope] = registry

    # -- registration --------------------------------------------------------------------------------------------

    def add_lazy(self, entries: Mapping[str, str]) -> None:
        """Add names that are imported (``"module:attr"``) when they are first used."""
        self._lazy.update(entries)

    def register_module(self, name: str | Sequence[str] | None = None, force: bool = False, module: Any = None) -> Any:
        """Register a class: ``@R.register_module()``, optionally with ``name`` and ``force``, or ``module=Cls``."""
        if not isinstance(force, bool):
            raise ConfigTypeError(f"force must be a boolean, but got {type(force)}")
        if not (name is None or isinstance(name, str) or _strings(name)):
            raise ConfigTypeError(f"name must be None, an instance of str, or a sequence of str, but got {type(name)}")
        if module is not None:
            self._register_module(module, name, force)
            return module

        def decorate(entry: Any) -> Any:
            self._register_module(entry, name, force)
            return entry

        return decorate

    def _register_module(
        self, module: Any, module_name: str | Sequence[str] | None = None, force: bool = False
    ) -> None:
        if not self._accepts(module):
            raise ConfigTypeError(f"module must be {self.wants}, but got {type(module)}")
        names = (
            [module.__name__] if module_name is None else [module_name] if isinstance(module_name, str) else module_name
        )
        for one in names:
            taken = self._module_dict.get(one)
            if taken is None and not is_own(getattr(module, "__module__", "")):
                taken = self._lazy.get(one)
            if taken is not None and not force and not _is_replaceable(taken, module):
                at = taken.partition(":")[0] if isinstance(taken, str) else getattr(taken, "__module__", "?")
                raise ConfigKeyError(
                    f"{one} is already registered in {self.name} at {at}", hint="pass force=True to replace it"
                )
            self._module_dict[one] = module

    @classmethod
    def _accepts(cls, module: Any) -> bool:
        return callable(module)


def _is_replaceable(taken: Any, module: Any) -> bool:
    """Return whether ``module`` may replace ``taken`` without ``force``.

    It may if ``taken`` is Étude's stand-in for a class of an original project, or the lazy entry of the same class.
    """
    if taken == f"{getattr(module, '__module__', '')}:{getattr(module, '__name__', '')}":
        return True
    at = taken if isinstance(taken, str) else str(getattr(taken, "__module__", ""))
    package = str(getattr(module, "__module__", "")).partition(".")[0]
    return is_own(at) and ownership.has_marks(package) and ownership.original(package) is not None


def _strings(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(item, str) for item in value)


#: Registries whose variable name does not follow from their name.
_TABLES = {
    "parameter scheduler": "PARAM_SCHEDULERS",
    "optimizer wrapper constructor": "OPTIM_WRAPPER_CONSTRUCTORS",
    "strategy": "STRATEGIES",
    "evaluator": "EVALUATOR",
    "vis_backend": "VISBACKENDS",
}


def registered_by_hand() -> dict[tuple[str, str], str]:
    """Map (variable, name) → ``module:attr`` for all entries in this process that are not Étude's."""
    return {
        (_table(registry.name), name): f"{entry.__module__}:{entry.__qualname__}"
        for registry in list(EVERY)
        for name, entry in registry.registered.items()
        if _is_users(entry)
    }


def _table(name: str) -> str:
    """Return the variable of a registry: ``optimizer builder`` → ``OPTIMIZER_BUILDERS``."""
    return _TABLES.get(name, f"{name.upper().replace(' ', '_').removesuffix('S')}S")


def _is_users(entry: Any) -> bool:
    module = getattr(entry, "__module__", None) or "etude"
    return hasattr(entry, "__qualname__") and not (is_own(module) or module.startswith(("torch.", "mmengine.")))
