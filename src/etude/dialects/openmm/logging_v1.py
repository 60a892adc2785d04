"""mmcv 1.x's loggers: made once per name, to the console and, on rank 0, to a file."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

#: Names of the loggers that :func:`get_logger` has set up.
logger_initialized: dict[str, bool] = {}

FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"


def get_logger(
    name: str, log_file: Any = None, log_level: int | str = logging.INFO, file_mode: str = "w"
) -> logging.Logger:
    """The logger called ``name``. A child of one that was set up (``mmcls.x`` of ``mmcls``) shares its handlers."""
    logger = logging.getLogger(name)
    if name in logger_initialized or any(name.startswith(known) for known in logger_initialized):
        return logger
    for handler in logger.root.handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.ERROR)
    rank = _rank()
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if rank == 0 and log_file is not None:
        handlers.append(logging.FileHandler(log_file, file_mode))
    for handler in handlers:
        handler.setFormatter(logging.Formatter(FORMAT))
        handler.setLevel(log_level)
        logger.addHandler(handler)
    logger.setLevel(log_level if rank == 0 else logging.ERROR)
    logger_initialized[name] = True
    return logger


def print_log(msg: Any, logger: logging.Logger | str | None = None, level: int = logging.INFO) -> None:
    """Log ``msg``: to a logger, to the one of a name, nowhere (``silent``), or print it (None)."""
    if logger is None:
        print(msg)
    elif isinstance(logger, logging.Logger):
        logger.log(level, msg)
    elif logger == "silent":
        return
    elif isinstance(logger, str):
        get_logger(logger).log(level, msg)
    else:
        raise TypeError(
            f'logger should be either a logging.Logger object, str, "silent" or None, but got {type(logger)}'
        )


def _rank() -> int:
    """The rank of the running process group; a process group can only exist when torch has been imported."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return int(torch.distributed.get_rank())
    return int(os.environ.get("RANK", "0") or 0)
