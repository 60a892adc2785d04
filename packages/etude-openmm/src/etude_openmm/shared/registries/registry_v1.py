"""mmcv 1.x's ``Registry``: a name is looked up in one table only; a prefix selects a scope."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from etude.dialects.config_errors import making
from etude.errors import EtudeError
from etude.errors.spelling import suggest
from etude_openmm.shared.errors import ConfigAttributeError, ConfigKeyError, ConfigTypeError
from etude_openmm.shared.registries.registry_base import RegistryTree
from etude_openmm.shared.registries.registry_v2 import plain


class Registry(RegistryTree):
    """``Registry(name, build_func=None, parent=None, scope=None)``."""

    wants = "a class or a function"

    def _default_build(self) -> Callable[..., Any]:
        return build_from_cfg

    def get(self, key: str) -> Any:
        """Return the entry of ``key``, or None. Without a scope, parents are not searched."""
        scope, rest = self.split_scope_key(key)
        if scope is None or scope == self._scope:
            return self._own(rest)
        if scope in self._children:
            return self._children[scope].get(rest)
        if self.parent is None:
            raise ConfigAttributeError(f"{key}: no registry of scope {scope!r}", hint=suggest(scope, self._children))
        return self._get_root_registry().get(key)

    def known(self) -> list[str]:
        return sorted({*self._module_dict, *self._lazy})

    def register_module(
        self, name: str | Sequence[str] | type | None = None, force: bool = False, module: Any = None
    ) -> Any:
        """Register a class: ``@R.register_module()``, optionally with ``name`` and ``force``, or ``module=Cls``."""
        if isinstance(name, type):
            warnings.warn(
                "@R.register_module without a call is deprecated: write @R.register_module()",
                DeprecationWarning,
                stacklevel=2,
            )
            self._register_module(name, None, force)
            return name
        return super().register_module(name, force, module)

    @classmethod
    def _accepts(cls, module: Any) -> bool:
        return inspect.isclass(module) or inspect.isfunction(module)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self._name}, items={self._module_dict})"


def build_from_cfg(cfg: Any, registry: Registry, default_args: Any = None) -> Any:
    """Build the object of ``cfg``: ``type`` is its name, the other keys are its arguments.

    An exception of the call is raised again as the same type, with the name of the class before its message.
    """
    given, defaults = plain(cfg), plain(default_args)
    if given is None:
        raise ConfigTypeError(f"cfg must be a dict, but got {type(cfg)}")
    if not isinstance(registry, Registry):
        raise ConfigTypeError(f"registry must be an mmcv.Registry object, but got {type(registry)}")
    if default_args is not None and defaults is None:
        raise ConfigTypeError(f"default_args must be a dict or None, but got {type(default_args)}")
    args = {**(defaults or {}), **given}
    if "type" not in args:
        raise ConfigKeyError(f'`cfg` or `default_args` must contain the key "type", but got {cfg}\n{default_args}')
    with making(dict(args)):
        made = registry.entry(args.pop("type"))
        try:
            return made(**args)
        except EtudeError:
            raise
        except Exception as error:
            named = _with_class_name(error, made)
            if named is error:
                raise
            raise named from error


def _with_class_name(error: Exception, made: Any) -> Exception:
    try:
        named = type(error)(f"{made.__name__}: {error}")
    except Exception:  # its class takes other arguments
        return error
    # What Étude has attached to the exception (hints, places) stays with it.
    vars(named).update(vars(error))
    return named
