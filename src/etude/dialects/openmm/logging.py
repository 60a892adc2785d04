"""MMEngine's ``print_log``, and the seam where its ``MMLogger`` plugs in.

What is shared here must not know the MMEngine dialect. Its logger class makes itself known by :func:`use_manager`;
until then messages for the ``current`` logger go to Python's logger ``mmengine``.
"""

from __future__ import annotations

import logging
from typing import Any

_manager: Any = None


def use_manager(manager: Any) -> None:
    """Let ``manager`` (``get_current_instance``, ``check_instance_created``, ``get_instance``) answer for loggers."""
    global _manager
    _manager = manager


def current_logger() -> logging.Logger:
    """The logger that is current."""
    if _manager is None:
        return logging.getLogger("mmengine")
    found: logging.Logger = _manager.get_current_instance()
    return found


def print_log(msg: Any, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Log ``msg``: to a logger, to the ``current`` one, to the one of a name, nowhere (``silent``), or print (None)."""
    if logger is None:
        print(msg)
    elif isinstance(logger, logging.Logger):
        logger.log(level, msg)
    elif logger == "silent":
        return
    elif logger == "current":
        current_logger().log(level, msg)
    elif isinstance(logger, str):
        if _manager is not None and not _manager.check_instance_created(logger):
            raise ValueError(f"MMLogger: {logger} has not been created!")
        _named(logger).log(level, msg)
    else:
        raise TypeError(
            "`logger` should be either a logging.Logger object, str, 'silent', 'current' or None, "
            f"but got {type(logger)}"
        )


def _named(name: str) -> logging.Logger:
    if _manager is None:
        return logging.getLogger(name)
    found: logging.Logger = _manager.get_instance(name)
    return found
