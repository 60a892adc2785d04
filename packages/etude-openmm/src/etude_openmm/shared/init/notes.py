"""Records how each parameter was initialised. The outermost ``init_weights`` logs and removes these notes."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import nn

_TITLE = "Name of parameter - Initialization information\n"
_UNLOGGED: ContextVar[bool] = ContextVar("unlogged", default=False)


@contextmanager
def notes_of(module: nn.Module, logger: logging.Logger) -> Iterator[None]:
    """Keep notes for ``module`` and all modules below it inside this context, unless an outer context does."""
    if hasattr(module, "_params_init_info"):
        yield
        return
    _open(module)
    try:
        yield
        _dump(module, logger)
    finally:
        for part in module.modules():
            vars(part).pop("_params_init_info", None)


@contextmanager
def unlogged() -> Iterator[None]:
    """Drop the notes inside this context, because there is no log for them."""
    token = _UNLOGGED.set(True)
    try:
        yield
    finally:
        _UNLOGGED.reset(token)


def _open(module: nn.Module) -> None:
    notes: defaultdict[nn.Parameter, dict[str, Any]] = defaultdict(dict)
    for parameter in module.parameters():
        notes[parameter]["init_info"] = (
            f"The value is the same before and after calling `init_weights` of {type(module).__name__} "
        )
        notes[parameter]["tmp_mean_value"] = parameter.data.mean().cpu()
    for part in module.modules():
        object.__setattr__(part, "_params_init_info", notes)


def _dump(module: nn.Module, logger: logging.Logger) -> None:
    """Write the notes to the log file if there is one, to keep the console short; else log them line by line.

    A handler with a method ``note_text`` is a log file that is opened later.
    """
    if _UNLOGGED.get():
        return
    notes: Any = module._params_init_info
    lines = [
        f"\n{name} - {parameter.shape}: \n{notes[parameter]['init_info']} \n"
        for name, parameter in module.named_parameters()
    ]
    streams = [
        handler.stream
        for handler in logger.handlers
        if isinstance(handler, logging.FileHandler) and handler.stream is not None
    ]
    later = [handler for handler in logger.handlers if hasattr(handler, "note_text")]
    for handler in later:
        handler.note_text(_TITLE + "".join(lines))
    for stream in streams:
        stream.write(_TITLE)
        stream.writelines(lines)
        stream.flush()
    if not streams and not later:
        for line in lines:
            logger.info(line)
