"""Parses and announces injected faults: ``--chaos kill@step=37,enospc@save=2``.

.. code-block:: text

    kill@step=N  sigterm@step=N  sigint@step=N  usr1@step=N  raise@step=N    after N steps are done
    kill-saved@step=N                                                        the same, with nothing left to be written
    nan@step=N                                                               the loss of step N, or its batch
    kill@save=N  enospc@save=N   eio@save=N     slow@save=N  bitflip@save=N  in the N-th save
    worker-dies@batch=N                                                      the worker that makes batch N
    hang@step=N  freeze@step=N                                               the process sleeps, or is stopped
    kill@step=N,rank=1                                                       any of them on one rank alone

Inside the engine stand named points that cost nothing while no fault is planned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from etude.errors import ConfigError
from etude.errors.spelling import suggest
from etude.fast_dataclass import record

FAULTS = {
    "kill": ("step", "save"), "kill-saved": ("step",), "sigterm": ("step",), "sigint": ("step",), "usr1": ("step",),
    "raise": ("step",),
    "nan": ("step",), "enospc": ("save",), "eio": ("save",), "slow": ("save",), "bitflip": ("save",),
    "worker-dies": ("batch",), "hang": ("step",), "freeze": ("step",),
}  # fmt: skip
_PATTERN = re.compile(r"\s*([a-z0-9-]+)@([a-z]+)=(\d+)(?::rank=(\d+))?\s*")
_OWN_RANK = re.compile(r",\s*rank=")


@record
class Fault:
    """One planned fault: ``kill`` at ``step`` 37."""

    what: str
    where: str
    number: int
    #: The rank that it happens on; None: on all of them.
    rank: int | None = None

    def __str__(self) -> str:
        return f"{self.what}@{self.where}={self.number}" + ("" if self.rank is None else f",rank={self.rank}")


def parse(text: str, *, rank: int = 0, size: int = 1) -> tuple[Fault, ...]:
    """Parse ``"kill@step=37,nan@step=12"`` into the faults of ``rank``: ``kill@step=37,rank=1`` is for one rank only.

    A :class:`~etude.errors.ConfigError` says what may be written.
    """
    # A comma separates faults, and also the rank from its fault.
    faults = [_parse_one(piece) for piece in _OWN_RANK.sub(":rank=", text).split(",") if piece.strip()]
    for fault in faults:
        if fault.rank is not None and fault.rank >= size:
            raise ConfigError(f"--chaos: there is no rank {fault.rank}", hint=f"ranks go from 0 to {size - 1}")
    return tuple(fault for fault in faults if fault.rank in (None, rank))


def _parse_one(text: str) -> Fault:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ConfigError(f"--chaos: {text!r} is not a fault", hint="write kill@step=37 or enospc@save=2")
    what, where, number = match[1], match[2], int(match[3])
    if what not in FAULTS:
        raise ConfigError(f"--chaos: no fault is called {what!r}", hint=suggest(what, FAULTS))
    if where not in FAULTS[what]:
        places = " or ".join(f"{what}@{place}={number}" for place in FAULTS[what])
        raise ConfigError(f"--chaos: {text.strip()!r} cannot happen there", hint=f"write {places}")
    if number == 0:
        raise ConfigError(f"--chaos: {text.strip()!r} never comes", hint=f"the first {where} is 1")
    return Fault(what, where, number, None if match[4] is None else int(match[4]))


#: Who wants to know when the engine passes a point: name → what to call.
_listeners: dict[str, Callable[..., Any]] = {}


def point(name: str, **facts: Any) -> None:
    """Announce that the engine is here. Does nothing unless somebody listens."""
    if _listeners:
        listener = _listeners.get(name)
        if listener is not None:
            listener(**facts)


def listen(name: str, listener: Callable[..., Any] | None) -> None:
    """Call ``listener`` whenever the engine passes ``name``; None: no more."""
    if listener is None:
        _listeners.pop(name, None)
    else:
        _listeners[name] = listener


@contextmanager
def saving(path: str | os.PathLike[str]) -> Iterator[None]:
    """Mark the writing of a checkpoint to ``path``, in any layout."""
    point("save.begin")
    try:
        yield
        point("save.done", path=os.fspath(path))
    finally:
        point("save.end")
