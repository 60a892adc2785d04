"""MMEngine's ``Registry``: a name is looked up in the current scope, then in its parents; a prefix selects a scope."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from etude.dialects.config_errors import making
from etude.errors import OutOfScope
from etude_openmm.shared.errors import ConfigKeyError, ConfigTypeError
from etude_openmm.shared.importing import get_object_from_string
from etude_openmm.shared.logging import log_warning, print_log
from etude_openmm.shared.project_names import MODULE2PACKAGE, missing_project
from etude_openmm.shared.registries.managers import DefaultScope, ManagerMixin
from etude_openmm.shared.registries.registry_base import RegistryTree


class Registry(RegistryTree):
    """``Registry(name, build_func=None, parent=None, scope=None, locations=[])``."""

    def __init__(
        self,
        name: str,
        build_func: Callable[..., Any] | None = None,
        parent: Registry | None = None,
        scope: str | None = None,
        locations: list[str] | tuple[str, ...] = (),
    ) -> None:
        self._listed = True
        super().__init__(name, build_func, parent, scope)
        self._locations = list(locations)
        self._imported = False

    def _default_build(self) -> Callable[..., Any]:
        return build_from_cfg

    @property
    def _title(self) -> str:
        return f"{self.scope}::{self.name}"

    @property
    def module_dict(self) -> dict[str, Any]:
        """Return the whole table. It imports all lazy entries that can be imported, once."""
        for name in [*self._lazy] if not self._listed else ():
            with suppress(ImportError):
                self._own(name)
        self._listed = True
        return self._module_dict

    def __len__(self) -> int:
        return len(self.module_dict)

    def add_lazy(self, entries: Mapping[str, str]) -> None:
        super().add_lazy(entries)
        self._listed = False

    def get(self, key: str) -> Any:
        """Return the entry of ``key``, or None: from this table and parents, a scope's table, or an import path."""
        if not isinstance(key, str):
            raise ConfigTypeError(f"The key argument of `Registry.get` must be a str, got {type(key)}")
        self.import_from_location()
        scope, rest = self.split_scope_key(key)
        if scope is None or scope == self._scope:
            found = self._own(rest)
            if found is None and scope is None:
                found = self._from_parents(rest)
        else:
            found = self._from_scope(scope, rest)
        return get_object_from_string(key) if found is None else found

    def import_from_location(self) -> None:
        """Import the modules that register entries here, once."""
        if self._imported:
            return
        self._imported = True
        for location in self._locations:
            if _import_if_there(location) is None:
                print_log(f"{self.name}: there is no module {location!r}", logger="current", level=logging.DEBUG)
        if not self._locations and self._scope in MODULE2PACKAGE:
            _register_all(self._scope)

    def hint(self, key: str) -> str:
        current = DefaultScope.get_current_instance()
        scope = key.partition(".")[0] if "." in key else current.scope_name if current is not None else ""
        return missing_project(scope) or super().hint(key)

    @contextmanager
    def switch_scope_and_registry(self, scope: str | None) -> Iterator[Registry]:
        """Yield the registry of ``scope`` (or of the default scope) in this tree, and make that scope current."""
        with DefaultScope.overwrite_default_scope(scope):
            current = DefaultScope.get_current_instance()
            yield self if current is None else self._in_tree(current.scope_name)

    def _in_tree(self, scope: str) -> Registry:
        _import_registry_of(scope)
        found = self._get_root_registry()._search_child(scope)
        if found is None:
            log_warning(
                f"no registry of scope {scope!r} in the tree of {self._get_root_registry().name!r}; "
                f"{self.name!r} of scope {self.scope!r} is used. Was the package imported?"
            )
            return self
        return found  # type: ignore[no-any-return]

    def _search_child(self, scope: str) -> Registry | None:
        if self._scope == scope:
            return self
        for child in self._children.values():
            found: Registry | None = child._search_child(scope)
            if found is not None:
                return found
        return None

    def _from_parents(self, key: str) -> Any:
        parent = self.parent
        while parent is not None:
            parent.import_from_location()
            found = parent._own(key)
            if found is not None:
                return found
            parent = parent.parent
        return None

    def _from_scope(self, scope: str, rest: str) -> Any:
        _import_registry_of(scope)
        if scope in self._children:
            return self._children[scope]._table_get(rest)
        root = self._get_root_registry()
        if scope == root._scope or scope in root._children:
            return root._table_get(f"{scope}.{rest}")
        return None

    def _table_get(self, key: str) -> Any:
        """Look up ``key`` as :meth:`get` does, without trying it as an import path."""
        self.import_from_location()
        scope, rest = self.split_scope_key(key)
        if scope is None:
            found = self._own(rest)
            return self._from_parents(rest) if found is None else found
        if scope == self._scope:
            return self._own(rest)
        return self._children[scope]._table_get(rest) if scope in self._children else None

    def __repr__(self) -> str:
        from rich.console import Console
        from rich.table import Table

        table = Table(title=f"Registry of {self._name}")
        table.add_column("Names", justify="left", style="cyan")
        table.add_column("Objects", justify="left", style="green")
        for name, entry in sorted(self.module_dict.items()):
            table.add_row(name, str(entry))
        console = Console()
        with console.capture() as capture:
            console.print(table, end="")
        return capture.get()


def build_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build the object of ``cfg``: ``type`` is its name, the other keys are its arguments."""
    args = _arguments(cfg, registry, default_args)
    scope = args.pop("_scope_", None)
    with registry.switch_scope_and_registry(scope) as found_in, making(dict(args)):
        made = found_in.entry(args.pop("type"))
        if inspect.isclass(made) and issubclass(made, ManagerMixin):
            return made.get_instance(**args)
        return made(**args)


def _arguments(cfg: Any, registry: Any, default_args: Any) -> MutableMapping[str, Any]:
    given, defaults = plain(cfg), plain(default_args)
    if given is None:
        raise ConfigTypeError(f"cfg should be a dict, ConfigDict or Config, but got {type(cfg)}")
    if not isinstance(registry, Registry):
        raise ConfigTypeError(f"registry must be a mmengine.Registry object, but got {type(registry)}")
    if default_args is not None and defaults is None:
        raise ConfigTypeError(
            f"default_args should be a dict, ConfigDict, Config or None, but got {type(default_args)}"
        )
    if "type" not in given and "type" not in (defaults or {}):
        raise ConfigKeyError(f'`cfg` or `default_args` must contain the key "type", but got {cfg}\n{default_args}')
    return {**(defaults or {}), **given}


def plain(cfg: Any) -> Mapping[str, Any] | None:
    """Return the mapping inside a dict, ConfigDict or Config; None for anything else."""
    inner = getattr(cfg, "_cfg_dict", None)
    if isinstance(inner, dict):
        return inner
    return cfg if isinstance(cfg, dict) else None


def _import_registry_of(scope: str) -> None:
    """Import the registry module of a package, if it exists, which adds its registries to the tree."""
    module = _import_if_there(f"{scope}.registry") if _is_dotted_name(scope) else None
    getattr(module, "HOOKS", None)  # Étude's modules make their registries when a name is first read


def _register_all(scope: str) -> None:
    """Call ``register_all_modules`` of a package whose registries do not list the modules to import."""
    register = getattr(_import_if_there(f"{scope}.utils"), "register_all_modules", None)
    if register is not None:
        register(False)


def _import_if_there(name: str) -> ModuleType | None:
    """Import a module, or return None if it does not exist. An error inside the module is raised."""
    try:
        return importlib.import_module(name)
    except OutOfScope as error:
        if (error.name or "").partition(".")[0] != name.partition(".")[0]:
            raise  # the project is installed, but not what it needs
        return None  # the project is not installed, and Étude's stand-in has no such module
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        return None


def _is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))
