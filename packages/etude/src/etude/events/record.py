"""Collects recorded values: put from anywhere, kept on their device until a writer is due, then read in one
transfer."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from traceback import extract_tb
from typing import Any, Protocol

from etude.errors import printable

#: Values under these names depend on the machine, not on the training.
TIMING_PREFIXES = ("time/", "memory/", "throughput/", "system/")


#: What :meth:`Events.put_media` takes; ``artifact`` is a file for trackers that keep files.
KINDS = ("image", "histogram", "table", "text", "artifact")
_KIND = attrgetter("dtype", "device", "ndim")
#: How many values of a name are kept one by one until they are written.
MANY = 1000


@dataclass(frozen=True)
class _Medium:
    """An image, a histogram or a text with its step and epoch; None: those of the next record."""

    kind: str
    name: str
    value: Any
    at: tuple[int, int] | None


@dataclass(frozen=True)
class Record:
    """Values of one moment: after ``step`` steps, in ``epoch``, of the data ``split``."""

    step: int
    epoch: int
    split: str
    values: Mapping[str, float]
    time: float
    #: Images (arrays), histograms (arrays) and texts, by name; writers that cannot take them leave them.
    media: tuple[tuple[str, str, Any], ...] = ()

    @property
    def is_media_alone(self) -> bool:
        """Return whether there is nothing for a writer of numbers."""
        return bool(self.media) and not self.values


class Writer(Protocol):
    """Receives records.

    May offer ``state_dict``/``load_state_dict`` to forget what came after a checkpoint, and ``leave(say)``, which
    begins the end without waiting for it and comes before ``close``.
    """

    def write(self, record: Record) -> None: ...
    def close(self) -> None: ...


@dataclass
class Events:
    """Collects values and passes them to writers.

    ``put`` costs an append: a tensor stays on its device. ``flush`` averages what was put since the last one
    (``last=True``: keeps the latest), reads all of it at once, and hands one record to every writer.
    """

    writers: list[Writer] = field(default_factory=list)
    latest: dict[str, float] = field(default_factory=dict)
    _pending: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    #: The longer past of what is pending, in rows of :data:`MANY` values: a scalar tensor takes as much as 100 numbers.
    _rows: defaultdict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    _last: dict[str, Any] = field(default_factory=dict)
    _media: list[_Medium] = field(default_factory=list)
    #: How often each kind and name was put at the step of the latest.
    _names: Counter[tuple[str, str]] = field(default_factory=Counter)
    _named_at: int = -1
    #: Step and epoch of the latest record.
    _at: tuple[int, int] = (0, 0)
    #: The step and epoch that the run is in, for media.
    moment: Callable[[], tuple[int, int]] | None = None
    #: With several ranks: the values of all of them, from those of this one; every rank calls it.
    gather: Callable[[dict[str, list[float]]], dict[str, list[float]]] | None = None

    def put(self, name: str, value: Any, *, last: bool = False) -> None:
        """Record a number or a scalar tensor under ``name``."""
        if last:
            self._last[name] = value
        else:
            values = self._pending[name]
            values.append(value)
            if len(values) >= MANY:
                self._pack(name, values)

    def pending_names(self) -> set[str]:
        """Return the names of the values that the next record will have."""
        return {name for name, values in self._pending.items() if values} | {*self._rows, *self._last}

    def _pack(self, name: str, values: list[Any]) -> None:
        """Turn many pending values into one row."""
        self._rows[name].append(one_row(values))
        values.clear()

    def put_media(self, kind: str, name: str, value: Any) -> None:
        """Record an ``image`` (H×W×C array), a ``histogram`` (any array), a ``table`` or a ``text``, as it is now.

        A table is a list of mappings, a mapping of columns, or a data frame. Writers get it with the next record,
        under the step at which it was put. The second of a name at one step is called ``name/2``.
        """
        if kind not in KINDS:
            raise ValueError(f"put_media({kind!r}, {name!r}): {kind!r} is not one of {', '.join(KINDS)}")
        if kind == "table":
            from etude.events.media import table_text

            value = table_text(value)
        # A copy: training may change a tensor before a tracker's thread reads it.
        if hasattr(value, "detach"):
            value = value.detach().clone()
        elif hasattr(value, "__array_interface__"):
            value = value.copy()
        at = None if self.moment is None else self.moment()
        if at is not None:
            name = self._own_name(kind, name, at[0])
        self._media.append(_Medium(kind, name, value, at))

    def _own_name(self, kind: str, name: str, step: int) -> str:
        if step != self._named_at:
            self._names, self._named_at = Counter(), step
        self._names[kind, name] += 1
        count = self._names[kind, name]
        return name if count == 1 else f"{name}/{count}"

    def flush(self, *, step: int, epoch: int, split: str = "train") -> Record:
        """Read everything that is pending and write it as one record; media of earlier steps come before it."""
        values = _read(self._pending, self._rows, self._last, self.gather)
        self._pending, self._rows, self._last = defaultdict(list), defaultdict(list), {}
        self._write_media(step)
        media, self._media = self._media, []
        return self.write(values, step=step, epoch=epoch, split=split, media=_triples(media))

    def _write_media(self, step: float) -> None:
        """Write what was put before ``step``, a record for each step: trackers want steps in their order."""
        earlier = [medium for medium in self._media if medium.at is not None and medium.at[0] < step]
        self._media = [medium for medium in self._media if medium.at is None or medium.at[0] >= step]
        for at, found in groupby(earlier, key=attrgetter("at")):
            self._hand(Record(at[0], at[1], "train", {}, time.time(), _triples(found)))

    def write(
        self,
        values: Mapping[str, float],
        *,
        step: int,
        epoch: int,
        split: str,
        media: tuple[tuple[str, str, Any], ...] = (),
    ) -> Record:
        """Hand values that are numbers already to every writer."""
        if self._media:
            self._write_media(step)
        record = Record(step, epoch, split, dict(values), time.time(), media)
        self._at = step, epoch
        self.latest.update(record.values if split == "train" else {f"{split}/{k}": v for k, v in values.items()})
        self._hand(record)
        return record

    def _hand(self, record: Record) -> None:
        for writer in list(self.writers):
            try:
                writer.write(record)
            except Exception as error:
                self.writers.remove(writer)
                _warn(writer, "cannot write", error, "and is switched off; training continues")

    def close(self, say: Callable[[str], object] | None = None) -> None:
        """Write media that came after the last record, then close the writers; ``say`` gets why that takes long."""
        self._write_media(math.inf)
        if self._media:
            media, self._media = self._media, []
            self.write({}, step=self._at[0], epoch=self._at[1], split="train", media=_triples(media))
        leaving: list[tuple[Writer, Callable[[], object]]] = [
            (writer, partial(writer.leave, say)) for writer in self.writers if hasattr(writer, "leave")
        ]
        for writer, call in [*leaving, *((writer, writer.close) for writer in self.writers)]:
            try:
                call()
            except Exception as error:
                _warn(writer, "cannot be closed", error)

    def sync(self) -> None:
        """Sync the writers' files to the disk, before a checkpoint that counts on them; any thread may call it."""
        for writer in list(self.writers):
            sync = getattr(writer, "sync", None)
            if sync is not None:
                sync()

    def state_dict(self) -> dict[str, Any]:
        """Return what was put and not yet written, and how far each writer had come; nothing that the clock said."""
        last = without_timing(self._last)
        pending = {
            name: [*_numbers_in(self._rows[name]), *numbers_of(values)] for name, values in self._pending.items()
        }
        return {
            "pending": pending if self.gather is None else self.gather(pending),
            "last": dict(zip(last, numbers_of(list(last.values())), strict=True)),
            "latest": without_timing(self.latest),
            "writers": {name: writer.state_dict() for name, writer in self._stateful()},
            **self._media_state(),
        }

    def _media_state(self) -> dict[str, Any]:
        """Return the media that wait for a record, and the names of this step; nothing in a run that puts none."""
        if self._named_at < 0 and not self._media:
            return {}
        names = [[kind, name, count] for (kind, name), count in self._names.items()]
        media = [[medium.kind, medium.name, _storable(medium), medium.at] for medium in self._media]
        return {"media": [one for one in media if one[2] is not None], "names": [self._named_at, names]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._rows = defaultdict(list)
        self._pending = defaultdict(list, {name: list(values) for name, values in state["pending"].items()})
        self._last = dict(state["last"])
        self._media = [_Medium(kind, name, value, at) for kind, name, value, at in state.get("media", ())]
        self._named_at, names = state.get("names", (-1, ()))
        self._names = Counter({(kind, name): count for kind, name, count in names})
        self.latest = dict(state["latest"])
        for name, writer in self._stateful():
            if name in state["writers"]:
                writer.load_state_dict(state["writers"][name])

    def _stateful(self) -> Iterable[tuple[str, Any]]:
        """Return the writers with a state, each under its own name: writers of one kind may write to several files."""
        counts: Counter[str] = Counter()
        for writer in self.writers:
            if hasattr(writer, "state_dict"):
                kind = type(writer).__name__
                counts[kind] += 1
                yield f"{kind}#{counts[kind]}", writer


def _warn(writer: Writer, what: str, error: Exception, then: str = "") -> None:
    """Warn that a writer is broken; if the disk is not the cause, name the line."""
    text = str(error)
    if not isinstance(error, OSError):
        last = extract_tb(error.__traceback__)[-1]
        text = f"{last.filename}:{last.lineno}: {type(error).__name__}: {error}"
    warnings.warn(f"{type(writer).__name__} {what} ({printable(text)}) {then}".rstrip(), stacklevel=4)


def _triples(media: Iterable[_Medium]) -> tuple[tuple[str, str, Any], ...]:
    return tuple((medium.kind, medium.name, medium.value) for medium in media)


def _storable(medium: _Medium) -> Any:
    """Return the value as a checkpoint can hold it; None for what no writer could show."""
    if medium.kind not in ("image", "histogram"):
        return str(medium.value)
    if hasattr(medium.value, "detach"):
        return medium.value if str(medium.value.layout) == "torch.strided" else None
    import numpy as np

    array = np.asarray(medium.value)
    return array if array.dtype.kind in "biuf" and array.dtype.itemsize <= 8 else None


def _read(
    pending: Mapping[str, list[Any]],
    rows: Mapping[str, list[Any]],
    last: Mapping[str, Any],
    gather: Callable[[dict[str, list[float]]], dict[str, list[float]]] | None = None,
) -> dict[str, float]:
    """Return every pending value as a number; all tensors are read in one transfer, in double precision."""
    numbers = iter(numbers_of(list(chain.from_iterable(pending.values()))))
    lists = {
        name: [*_numbers_in(rows.get(name, ())), *islice(numbers, len(values))] for name, values in pending.items()
    }
    if gather is not None:
        lists = gather(lists)
    means = {}
    for name, own in lists.items():
        # fsum raises where infinities of both signs meet.
        means[name] = math.fsum(own) / len(own) if all(map(math.isfinite, own)) else sum(own) / len(own)
    return means | dict(zip(last, numbers_of(list(last.values())), strict=True))


def is_timing(name: str) -> bool:
    """Return whether a value depends on the machine, not on the training."""
    return name.startswith(TIMING_PREFIXES)


def without_timing(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what training determines, without what the machine does."""
    return {name: value for name, value in values.items() if not name.startswith(TIMING_PREFIXES)}


def one_row(values: list[Any]) -> Any:
    """Return many values as one tensor, on the device that they are on."""
    import torch

    if not _are_alike(values):
        return torch.tensor(numbers_of(values), dtype=torch.float64)
    with torch.no_grad():
        return torch.stack(values)


def _numbers_in(rows: Iterable[Any]) -> list[float]:
    return [number for row in rows for number in row.double().tolist()]


def _are_alike(values: list[Any]) -> bool:
    """Return whether all values are scalar tensors of one kind, as they are in most runs."""
    try:
        kinds = set(map(_KIND, values))
    except AttributeError:  # a plain number
        return False
    return len(kinds) == 1 and hasattr(values[0], "detach") and values[0].ndim == 0


def numbers_of(values: list[Any]) -> list[float]:
    """Return numbers and scalar tensors as floats, with one transfer for all tensors of a kind."""
    if _are_alike(values):
        import torch

        with torch.no_grad():
            return torch.stack(values).double().tolist()
    tensors = [value for value in values if hasattr(value, "detach")]
    if not tensors:
        return [float(value) for value in values]
    import torch

    kinds: dict[Any, list[Any]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
    read: dict[int, float] = {}
    with torch.no_grad():
        for alike in kinds.values():
            stacked = torch.stack([tensor if tensor.ndim == 0 else tensor.reshape(()) for tensor in alike])
            read.update(zip(map(id, alike), stacked.double().tolist(), strict=True))
    return [read[id(value)] if hasattr(value, "detach") else float(value) for value in values]
