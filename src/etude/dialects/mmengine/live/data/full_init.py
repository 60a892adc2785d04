"""Methods that need the annotations load them first."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from etude.dialects.openmm.logging import print_log


def force_full_init(old_func: Callable[..., Any]) -> Callable[..., Any]:
    """Call ``full_init()`` of the object before the method, if nobody has."""

    @functools.wraps(old_func)
    def wrapper(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(obj, "_fully_initialized", False):
            initialise(obj)
        return old_func(obj, *args, **kwargs)

    return wrapper


def initialise(obj: Any) -> None:
    """``obj.full_init()``, with a line in the log: a lazy dataset is loaded now."""
    name = type(obj).__name__
    if not hasattr(obj, "full_init"):
        raise AttributeError(f"{name} does not have full_init method.")
    print_log(f"{name} was made with lazy_init; it is loaded now (full_init).", "current", logging.WARNING)
    obj.full_init()
    obj._fully_initialized = True
