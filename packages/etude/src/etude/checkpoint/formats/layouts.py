"""Describes how other systems name their checkpoints and what they put into them. Guests bring the descriptions.

A guest lists its :class:`Layout` objects in the entry point group ``etude.layouts``. With them, ``etude ckpt``,
``init_from`` and ``--resume`` understand its folders, also those of runs that Étude did not make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from etude.fast_dataclass import field, record
from etude.inspection.entry_points import load_entry_points

GROUP = "etude.layouts"


def _no(_: Any) -> bool:
    return False


@record
class Layout:
    """One system's checkpoints."""

    #: As ``etude ckpt`` shows it, and as ``--to`` takes it if there is :attr:`arrange`.
    name: str
    #: Return whether a checkpoint, given as what its file or files hold, has this layout.
    holds: Callable[[Mapping[Any, Any]], bool] = _no
    #: Where the number of steps is: part ("" for the top), key, and what a number that begins at 0 lacks.
    steps: Iterable[tuple[str, str, int]] = ()
    #: Part and key of the epoch.
    epochs: Iterable[tuple[str, str]] = ()
    #: Part and key of the weights, joined by a point, if they are at none of the usual names.
    weights: str = ""
    #: Part and key of the optimizer's state, joined by a point.
    optimizer: str = "optimizer"
    #: Correct a number of steps by what else the checkpoint holds.
    correct: Callable[[int, Mapping[Any, Any]], int] | None = None
    #: Files next to the checkpoints that name, or link to, one of them.
    pointers: Iterable[str] = ()
    #: The words before the number in names such as ``model_0000999``, where that counts from 0.
    from_zero: Iterable[str] = ()
    #: What the names of a run's last checkpoint begin with.
    final: Iterable[str] = ()
    #: Return whether a folder is one checkpoint with a file per part.
    is_folder: Callable[[str], bool] = _no
    #: Return why such a folder cannot be read; empty if it can.
    refuse_folder: Callable[[str], str] = lambda _: ""
    #: A pattern of folders that hold one run each, with its checkpoints.
    runs: str = ""
    #: A pattern of keys, parts joined by points, that differ between two equal runs: times, paths, random ids.
    bookkeeping: str = ""
    #: Classes in its pickles that are only data: (module, name) → "mapping" (a dict), "object" (its attributes) or
    #: "method" (a bound method that the object carries along).
    pickled: Mapping[tuple[str, str], str] = field(default_factory=dict)
    #: Return what a file of this layout holds, for weights, numbers of steps and epochs, and an optimizer's state.
    arrange: Callable[[Mapping[str, Any], Mapping[str, Any], Any], dict[str, Any]] | None = None


@cache
def known() -> tuple[Layout, ...]:
    """Return the layouts of all guests that are installed."""
    return tuple(load_entry_points(GROUP).values())


def writable() -> list[str]:
    """Return the names of the layouts that ``etude ckpt convert`` can write."""
    return [layout.name for layout in known() if layout.arrange is not None]
