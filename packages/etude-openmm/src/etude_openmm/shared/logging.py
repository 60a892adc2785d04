"""Loggers of mmcv 1.x, and ``print_log`` of mmcv 1.x and MMEngine.

This module must not import the MMEngine dialect. Its ``MMLogger`` registers itself with :func:`use_manager`;
before that, messages for the ``current`` logger go to Python's logger ``mmengine``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_manager: Any = None
#: Names of the loggers that :func:`get_logger` has set up.
logger_initialized: dict[str, bool] = {}
FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"


def use_manager(manager: Any) -> None:
    """Use ``manager`` (``get_current_instance``, ``check_instance_created``, ``get_instance``) to find loggers."""
    global _manager
    _manager = manager


def current_logger() -> logging.Logger:
    """Return the current logger."""
    if _manager is None:
        return logging.getLogger("mmengine")
    found: logging.Logger = _manager.get_current_instance()
    return found


def print_log(msg: Any, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Log ``msg`` to a logger, the ``current`` one or one by name; drop it (``silent``), or print it (None)."""
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
        _logger_named(logger).log(level, msg)
    else:
        raise TypeError(
            "`logger` should be either a logging.Logger object, str, 'silent', 'current' or None, "
            f"but got {type(logger)}"
        )


def log_warning(text: str) -> None:
    """Log a warning to the current logger."""
    current_logger().warning(text)


def _logger_named(name: str) -> logging.Logger:
    if _manager is None:
        return logging.getLogger(name)
    found: logging.Logger = _manager.get_instance(name)
    return found


# -- mmcv 1.x ----------------------------------------------------------------------------------------------------------


_QUIET: list[bool] = [False]


@contextmanager
def quiet_console(quiet: bool) -> Iterator[None]:
    """Let loggers made inside this context print errors only, if ``quiet``."""
    former, _QUIET[0] = _QUIET[0], quiet
    try:
        yield
    finally:
        _QUIET[0] = former


def get_logger(
    name: str, log_file: Any = None, log_level: int | str = logging.INFO, file_mode: str = "w"
) -> logging.Logger:
    """Return the logger called ``name``. A child of a known one (``mmcls.x`` of ``mmcls``) shares its handlers."""
    logger = logging.getLogger(name)
    if name in logger_initialized or any(name.startswith(known) for known in logger_initialized):
        return logger
    # As in mmcv: a handler of the root logger, which torch's DDP may add, would print every line again.
    for handler in logger.root.handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.ERROR)
    own = rank()
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if own == 0 and log_file is not None:
        handlers.append(logging.FileHandler(log_file, file_mode))
    for handler in handlers:
        handler.setFormatter(logging.Formatter(FORMAT))
        handler.setLevel(log_level)
        logger.addHandler(handler)
    if _QUIET[0]:
        handlers[0].setLevel(logging.ERROR)
    logger.setLevel(log_level if own == 0 else logging.ERROR)
    logger_initialized[name] = True
    return logger


def print_log_v1(msg: Any, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Log ``msg`` as mmcv 1.x does: a logger that does not exist is made."""
    print_log(msg, get_logger(logger) if isinstance(logger, str) and logger != "silent" else logger, level)


def rank() -> int:
    """Return the rank, without importing torch: a process group can only exist if torch is imported."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(os.environ.get("RANK", "0") or 0)
