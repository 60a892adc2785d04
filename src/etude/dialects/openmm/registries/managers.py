"""Objects that are made once per name and can be asked for from anywhere (MMEngine's loggers, hubs, visualizers)."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections import OrderedDict
from typing import Any, TypeVar

T = TypeVar("T", bound="ManagerMixin")

_lock = threading.RLock()


def _accquire_lock() -> None:
    """Hold what guards the tables of instances; MMEngine's name for it."""
    _lock.acquire()


def _release_lock() -> None:
    _lock.release()


class ManagerMeta(type):
    """Gives each managed class its own table of instances, and insists on a ``name`` argument."""

    def __init__(cls, *args: Any) -> None:
        cls._instance_dict: OrderedDict[str, Any] = OrderedDict()
        if "name" not in inspect.signature(cls.__init__).parameters:  # type: ignore[misc]
            raise AssertionError(f"{cls} must have the `name` argument")
        super().__init__(*args)


class ManagerMixin(metaclass=ManagerMeta):
    """``Cls.get_instance("a")`` makes it or finds it; ``Cls.get_current_instance()`` is the newest one."""

    def __init__(self, name: str = "", **kwargs: Any) -> None:
        if not isinstance(name, str) or not name:
            raise AssertionError("name argument must be an non-empty string.")
        self._instance_name = name

    @classmethod
    def get_instance(cls: type[T], name: str, **kwargs: Any) -> T:
        """The instance called ``name``; made with ``kwargs`` when there is none yet."""
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
        """The newest instance."""
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
