"""MMEngine's ManagerMixin, whose instances exist once per name (loggers, message hubs), and DefaultScope."""

from __future__ import annotations

import datetime
import inspect
import itertools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from etude_openmm.shared.logging import log_warning

T = TypeVar("T", bound="ManagerMixin")

_lock = threading.RLock()


class ManagerMeta(type):
    """Gives each managed class its own table of instances, and requires a ``name`` argument."""

    def __init__(cls, *args: Any) -> None:
        cls._instance_dict: OrderedDict[str, Any] = OrderedDict()
        if "name" not in inspect.signature(cls.__init__).parameters:  # type: ignore[misc]
            raise AssertionError(f"{cls} must have the `name` argument")
        super().__init__(*args)


class ManagerMixin(metaclass=ManagerMeta):
    """The base of managed classes. ``Cls.get_instance("a")`` makes or finds one; the newest one is the current one."""

    def __init__(self, name: str = "", **kwargs: Any) -> None:
        if not isinstance(name, str) or not name:
            raise AssertionError("name argument must be an non-empty string.")
        self._instance_name = name

    @classmethod
    def get_instance(cls: type[T], name: str, **kwargs: Any) -> T:
        """Return the instance called ``name``, or make it with ``kwargs``."""
        if not isinstance(name, str):
            raise AssertionError(f"type of name should be str, but got {type(name)}")
        with _lock:
            table = cls._instance_dict
            if name not in table:
                table[name] = cls(name=name, **kwargs)
            elif kwargs:
                warnings.warn(
                    f"{cls} instance named of {name} has been created, get_instance ignores the other arguments",
                    stacklevel=2,
                )
            found: T = table[name]
            return found

    @classmethod
    def get_current_instance(cls) -> Any:
        """Return the newest instance."""
        with _lock:
            if not cls._instance_dict:
                raise RuntimeError(f"Before calling {cls.__name__}.get_current_instance(), call get_instance(name=...)")
            return next(reversed(cls._instance_dict.values()))

    @classmethod
    def check_instance_created(cls, name: str) -> bool:
        """Return whether there is an instance called ``name``."""
        return name in cls._instance_dict

    @property
    def instance_name(self) -> str:
        return self._instance_name


_numbers = itertools.count()


class DefaultScope(ManagerMixin):
    """A named default scope for registries; the newest one is the current one."""

    def __init__(self, name: str, scope_name: str) -> None:
        super().__init__(name)
        if not isinstance(scope_name, str):
            raise AssertionError(f"scope_name should be a string, but got {scope_name}")
        self._scope_name = scope_name

    @property
    def scope_name(self) -> str:
        return self._scope_name

    @classmethod
    def get_current_instance(cls) -> Any:
        """Return the newest scope, or None."""
        return super().get_current_instance() if cls._instance_dict else None

    @classmethod
    @contextmanager
    def overwrite_default_scope(cls, scope_name: str | None) -> Iterator[None]:
        """Make ``scope_name`` the current scope inside this context; None changes nothing."""
        if scope_name is None:
            yield
            return
        before = cls._instance_dict.copy()
        cls.get_instance(f"overwrite-{next(_numbers)}", scope_name=scope_name)
        try:
            yield
        finally:
            cls._instance_dict = before


def init_default_scope(scope: str) -> None:
    """Make ``scope`` the current default scope."""
    current = DefaultScope.get_current_instance()
    if current is None or not DefaultScope.check_instance_created(scope):
        DefaultScope.get_instance(scope, scope_name=scope)
        return
    if current.scope_name != scope:
        log_warning(f'The current default scope "{current.scope_name}" is not "{scope}"; from now on it is "{scope}".')
        # Under a new name: an instance that exists would not become the current one.
        name = f"{scope}-{datetime.datetime.now()}"
        DefaultScope.get_instance(name, scope_name=scope)
