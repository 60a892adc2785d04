"""The current default scope: the registry node that type names of a config are looked up in first."""

from __future__ import annotations

import datetime
import itertools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from etude.dialects.openmm.logging import print_log
from etude.dialects.openmm.registries.managers import ManagerMixin

_numbers = itertools.count()


class DefaultScope(ManagerMixin):
    """A stack of named scopes; the newest is the current one."""

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
        """The newest scope, or None when none was set."""
        return super().get_current_instance() if cls._instance_dict else None

    @classmethod
    @contextmanager
    def overwrite_default_scope(cls, scope_name: str | None) -> Iterator[None]:
        """Make ``scope_name`` current for a while; None changes nothing."""
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
        print_log(
            f'The current default scope "{current.scope_name}" is not "{scope}"; from now on it is "{scope}".',
            logger="current",
            level=logging.WARNING,
        )
        name = f"{scope}-{datetime.datetime.now()}"
        DefaultScope.get_instance(name, scope_name=scope)
