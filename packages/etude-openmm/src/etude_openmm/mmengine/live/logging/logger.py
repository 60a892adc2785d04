"""MMEngine's MMLogger: writes to the console and to a file. Ranks other than 0 print only errors."""

from __future__ import annotations

import logging
import logging.handlers
import os
import socket
import sys
from collections.abc import Callable
from logging import Formatter, Logger, LogRecord
from typing import Any

from etude.dialects.properties import reads
from etude_openmm.shared.live.processes import get_rank as _get_rank
from etude_openmm.shared.live.processes import get_world_size as _get_world_size
from etude_openmm.shared.logging import print_log, use_manager
from etude_openmm.shared.registries.managers import ManagerMixin

__all__ = ["FilterDuplicateWarning", "MMFormatter", "MMLogger", "print_log"]

_COLOURS = {"ERROR": "31", "WARNING": "33", "INFO": "37", "DEBUG": "36"}


class FilterDuplicateWarning(logging.Filter):
    """Lets each distinct warning through once."""

    def __init__(self, name: str = "mmengine") -> None:
        super().__init__(name)
        self.seen: set[Any] = set()

    def filter(self, record: LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        if record.msg in self.seen:
            return False
        self.seen.add(record.msg)
        return True


class LogFile(logging.FileHandler):
    """A log file. If writing fails, this is reported once, and the run continues without the file."""

    def handleError(self, record: LogRecord) -> None:
        # No record has that level: nothing is written any more.
        self.setLevel(logging.CRITICAL + 1)
        print(f"{self.baseFilename} is given up: {sys.exc_info()[1]}", file=sys.stderr)


class MMFormatter(Formatter):
    """Formats ``time - name - LEVEL - text``. Errors also show where they were logged."""

    def __init__(self, color: bool = True, blink: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        assert color or not blink, "blink should only be available when color is True"
        self.color, self.blink = color and _shows_colours(), blink

    def _level(self, name: str) -> str:
        code = _COLOURS.get(name)
        if not self.color or code is None:
            return name
        style = ";".join(["1"] * (name == "ERROR") + ["5"] * self.blink + [code])
        return f"\x1b[{style}m{name}\x1b[0m"

    def format(self, record: LogRecord) -> str:
        where = "%(pathname)s - %(funcName)s - %(lineno)d - " if record.levelno == logging.ERROR else ""
        # The format depends on the level, and a formatter has one format only.
        self._style._fmt = f"%(asctime)s - %(name)s - {self._level(record.levelname)} - {where}%(message)s"
        return super().format(record)


class MMLogger(Logger, ManagerMixin):
    """A logger that ``get_instance`` finds by name; the newest one is the current one.

    Lines show ``logger_name``, not the name of the instance. Ranks other than 0 print only errors; they have own files
    with ``distributed`` or at debug level.
    """

    def __init__(
        self,
        name: str,
        logger_name: str = "mmengine",
        log_file: str | os.PathLike[str] | None = None,
        log_level: int | str = "INFO",
        file_mode: str = "w",
        distributed: bool = False,
        file_handler_cfg: dict[str, Any] | None = None,
    ) -> None:
        Logger.__init__(self, logger_name)
        ManagerMixin.__init__(self, name)
        level = logging._nameToLevel[log_level] if isinstance(log_level, str) else log_level
        rank, world_size = _get_rank(), _get_world_size()
        console = logging.StreamHandler(stream=sys.stdout)
        self._add(console, MMFormatter(color=True, datefmt="%m/%d %H:%M:%S"), level if rank == 0 else logging.ERROR)
        each_rank = (level <= logging.DEBUG or distributed) and world_size > 1
        if log_file is not None:
            log_file = _file_of_rank(os.fspath(log_file), rank) if each_rank else os.fspath(log_file)
            if rank == 0 or each_rank:
                handler = _file_handler(log_file, file_mode, file_handler_cfg)
                self._add(handler, MMFormatter(color=False, datefmt="%Y/%m/%d %H:%M:%S"), level)
        self._log_file = log_file

    def _add(self, handler: logging.Handler, formatter: Formatter, level: int) -> None:
        handler.setFormatter(formatter)
        handler.setLevel(level)
        handler.addFilter(FilterDuplicateWarning(self.name))
        self.handlers.append(handler)

    #: The path of the log file.
    log_file: str | None = reads("_log_file")

    @classmethod
    def get_current_instance(cls) -> MMLogger:
        """Return the newest logger, or make one named ``mmengine`` if there is none."""
        if not cls._instance_dict:
            cls.get_instance("mmengine")
        logger: MMLogger = super().get_current_instance()
        return logger

    def callHandlers(self, record: LogRecord) -> None:
        """Give the record only to this logger's handlers: it has no parent."""
        for handler in self.handlers:
            if record.levelno >= handler.level:
                handler.handle(record)

    def setLevel(self, level: int | str) -> None:
        """Set the level, and clear the cache of enabled levels of all loggers."""
        # The base class clears caches through logging's manager, which does not know these loggers.
        self.level = logging._checkLevel(level)  # type: ignore[attr-defined]
        for logger in list(type(self)._instance_dict.values()):
            logger._cache.clear()
        self._cache.clear()  # type: ignore[attr-defined]


use_manager(MMLogger)


def _shows_colours() -> bool:
    """Return whether to write colours: on a terminal unless the environment forbids them, or if it forces them."""
    if os.environ.get("NO_COLOR") or os.environ.get("ANSI_COLORS_DISABLED"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    try:
        return os.environ.get("TERM") != "dumb" and sys.stdout.isatty()
    except (AttributeError, ValueError):
        return False


def _file_of_rank(path: str, rank: int) -> str:
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    host = socket.gethostname()
    parts = [stem, host, f"device{_get_device_id()}", f"rank{rank}"]
    return os.path.join(folder, "_".join(filter(None, parts)) + suffix)


def _get_device_id() -> int:
    """Return the index of this process's device on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def _file_handler(path: str, mode: str, options: dict[str, Any] | None) -> logging.Handler:
    if options is None:
        return LogFile(path, mode)
    assert "type" in options, "`file_handler_cfg` needs a `type`"
    options = {"filename": path, **options}
    name = options.pop("type")
    found: Callable[..., logging.Handler] | None = _file_handlers().get(name)
    if found is None:
        raise ValueError(f"`logging.handlers` does not contain {name!r}; known: {', '.join(_file_handlers())}")
    return found(**options)


def _file_handlers() -> dict[str, Callable[..., logging.Handler]]:
    return {
        name: value
        for name, value in {**vars(logging), **vars(logging.handlers)}.items()
        if isinstance(value, type) and issubclass(value, logging.FileHandler)
    }
