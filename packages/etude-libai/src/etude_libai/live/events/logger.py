"""LiBai's logger: coloured lines on the console, plain ones in ``log.txt``."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import Counter
from functools import cache
from typing import Any

_DATE = "%m/%d %H:%M:%S"
_ABBREVIATIONS = {"libai": "lb", "detectron2": "d2"}
_COLOURS = {logging.WARNING: "\x1b[31mWARNING\x1b[0m", logging.ERROR: "\x1b[31;4mERROR\x1b[0m"}


class ConsoleFormatter(logging.Formatter):
    """Formats ``[11/15 20:42:50 lb.engine]: message`` in green, without changing the record for other handlers."""

    def __init__(self, name: str, abbreviation: str) -> None:
        super().__init__(datefmt=_DATE)
        self._name, self._abbreviation = f"{name}.", f"{abbreviation}." if abbreviation else ""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.replace(self._name, self._abbreviation)
        stamp = f"\x1b[32m[{self.formatTime(record, _DATE)} {name}]: \x1b[0m"
        level = f"{_COLOURS[record.levelno]} " if record.levelno in _COLOURS else ""
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{stamp}{level}{text}"


class Held(logging.Handler):
    """Keeps log records while a run is built, for the log file that is opened when it begins."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._logger = logging.getLogger(name)
        self._level = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def __enter__(self) -> Held:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.DEBUG)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
        if error is not None:
            self.say(warnings_only=True)

    def say(self, *, warnings_only: bool = False) -> None:
        """Log the kept records now."""
        records, self.records = self.records, []
        for record in records:
            if not warnings_only or record.levelno >= logging.WARNING:
                logging.getLogger(record.name).handle(record)


@cache
def setup_logger(
    output: str | None = None,
    distributed_rank: int = 0,
    *,
    color: bool = True,
    name: str = "libai",
    abbrev_name: str | None = None,
) -> logging.Logger:
    """Set up the logger ``name``, once for equal arguments: rank 0 logs to the console, every rank to ``output``."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    plain = logging.Formatter("[%(asctime)s] %(name)s %(levelname)s: %(message)s", datefmt=_DATE)
    if abbrev_name is None:
        abbrev_name = _ABBREVIATIONS.get(name, name)
    if distributed_rank == 0:
        console = logging.StreamHandler(stream=sys.stdout)
        console.setLevel(logging.DEBUG)
        console.setFormatter(ConsoleFormatter(name, abbrev_name) if color else plain)
        logger.addHandler(console)
    if output is not None:
        logger.addHandler(_file_handler(output, distributed_rank, plain))
    return logger


def _file_handler(output: str, rank: int, formatter: logging.Formatter) -> logging.Handler:
    filename = output if output.endswith((".txt", ".log")) else os.path.join(output, "log.txt")
    if rank > 0:
        filename = f"{filename}.rank{rank}"
    os.makedirs(os.path.dirname(os.path.abspath(filename)), exist_ok=True)
    handler = logging.FileHandler(filename, mode="a", encoding="utf-8")
    handler.setLevel(logging.DEBUG)
    handler.setFormatter(formatter)
    return handler


_COUNTS: Counter[Any] = Counter()
_TIMES: dict[Any, float] = {}


def _caller() -> tuple[str, tuple[Any, ...]]:
    """Return the module and the place of the code that called a helper of this file."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    module = frame.f_globals.get("__name__") or "libai"
    return ("libai" if module == "__main__" else module), (
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_code.co_name,
    )


def log_first_n(
    lvl: int, msg: str, n: int = 1, *, name: str | None = None, key: str | tuple[str, ...] = "caller"
) -> None:
    """Log the first ``n`` times only, counted by the place of the call (or by the message: ``key="message"``)."""
    module, place = _caller()
    keys = (key,) if isinstance(key, str) else key
    counted: tuple[Any, ...] = ()
    if "caller" in keys:
        counted += place
    if "message" in keys:
        counted += (msg,)
    _COUNTS[counted] += 1
    if _COUNTS[counted] <= n:
        logging.getLogger(name or module).log(lvl, msg)


def log_every_n(lvl: int, msg: str, n: int = 1, *, name: str | None = None) -> None:
    """Log once per ``n`` calls from the same place."""
    module, place = _caller()
    _COUNTS[place] += 1
    # No count leaves a rest of 1 when it is divided by 1.
    if n == 1 or _COUNTS[place] % n == 1:
        logging.getLogger(name or module).log(lvl, msg)


def log_every_n_seconds(lvl: int, msg: str, n: float = 1, *, name: str | None = None) -> None:
    """Log at most once per ``n`` seconds from the same place."""
    module, place = _caller()
    last, now = _TIMES.get(place), time.time()
    if last is None or now - last >= n:
        logging.getLogger(name or module).log(lvl, msg)
        _TIMES[place] = now
