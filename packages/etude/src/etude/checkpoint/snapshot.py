"""Copies a state into host memory that every save reuses, so that training waits for one copy only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

import torch

from etude.checkpoint.capture import DTYPE, SHAPE, Capture, Forms, capture
from etude.checkpoint.encode import Part, encode
from etude.checkpoint.formats import safetensors
from etude.fast_dataclass import field, record

_ALIGN = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_.#+-]+")


@record
class Region:
    """The location of one part's tensors in the arena; ``views`` are in the order in which the tensors are found."""

    begin: int
    end: int
    views: list[torch.Tensor]
    #: The header of the file with the names and the metadata that it was made for.
    _heads: list[tuple[Any, bytes]] = field(default_factory=list)

    def head(self, named: Mapping[str, torch.Tensor], metadata: dict[str, str]) -> bytes:
        """Return the header of the part's file; made once for a state that stays as it is."""
        made_for = list(named), metadata
        if not self._heads or self._heads[0][0] != made_for:
            order = sorted(named, key=lambda name: -named[name].itemsize)  # as :meth:`Arena._views` lays them out
            layout = {name: (named[name].dtype, tuple(named[name].shape)) for name in order}
            self._heads[:] = [(made_for, safetensors.header(layout, metadata))]
        return self._heads[0][1]


@record
class File:
    """A file to be written: its name and its bytes, piece after piece."""

    name: str
    pieces: tuple[memoryview, ...]

    @property
    def size(self) -> int:
        return sum(len(piece) for piece in self.pieces)


@record
class Snapshot:
    """Everything that a save writes, independent of what training does from now on."""

    #: Part → the file of its tensors, or None.
    parts: Mapping[str, str | None]
    _taken: Mapping[str, Part | Capture]
    _regions: Mapping[str, Region]
    _memory: torch.Tensor
    _rank: int

    @cached_property
    def files(self) -> tuple[File, ...]:
        """The files to write. Making them is left to the thread that writes."""
        return tuple(self._files())

    def _files(self) -> Iterator[File]:
        whole = safetensors.bytes_of(self._memory)
        for part, region in self._regions.items():
            made = self._encoded[part]
            head = region.head(made.tensors, made.aliases | _places(made, made.tensors))
            name = self.parts[part]
            assert name is not None, "a part with tensors has a file"
            yield File(name, (memoryview(head), whole[region.begin : region.end]))
        if self._rank:
            return
        trees = {part: made.tree for part, made in self._encoded.items()}
        yield File("state.json", (memoryview(json.dumps(trees, ensure_ascii=False, allow_nan=False).encode()),))

    @cached_property
    def _encoded(self) -> dict[str, Part]:
        """Part → its tree, with its tensors in the arena by their names."""
        return {part: taken.encoded() for part, taken in self._taken.items()}

    def unsound(self, part: str, names: Iterable[str]) -> str | None:
        """Return the first of ``names`` in ``part`` that is not finite. Needs no extra memory."""
        views = self._encoded[part].tensors if part in self._regions else {}
        for name in names:
            view = views.get(name)
            # torch has no `aminmax` of float8. NaN is both the smallest and the largest.
            if view is None or not view.numel() or not (view.is_floating_point() and view.dtype.itemsize > 1):
                continue
            low, high = torch.aminmax(view)
            if not (math.isfinite(low) and math.isfinite(high)):
                return name
        return None


class Arena:
    """Host memory for snapshots. It grows with the state, and lays out the same state in the same way.

    The first rank copies everything that it has; each other ``rank`` only its pieces of tensors in shards.
    """

    def __init__(self, rank: int = 0) -> None:
        self._rank = rank
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._forms: dict[str, Forms] = {}
        self._regions: dict[str, Region] = {}

    def prepare(self, size: int) -> None:
        """Allocate and touch ``size`` bytes: the first touch of fresh memory costs more than the copy."""
        if self._memory.numel() < size:
            self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available()).zero_()
            self._forms = {}

    def take(self, state: Mapping[str, Any]) -> Snapshot:
        """Copy ``state`` (part → tree). The snapshot is good until the next call."""
        taken: dict[str, Capture | Part] = {
            name: capture(name, value) or encode(name, value) for name, value in state.items()
        }
        if self._rank:
            taken = {name: _shards_of(part) for name, part in taken.items() if isinstance(part, Part)}
        else:
            taken = {name: _without_absent(part) if isinstance(part, Part) else part for name, part in taken.items()}
        sources = {name: part.sources for name, part in taken.items() if part.sources}
        regions = self._place(sources)
        _copy(list(chain(*(region.views for region in regions.values()))), list(chain(*sources.values())))
        for name, region in regions.items():
            taken[name].use(region.views)
        names = dict(zip(regions, file_names(regions, self._rank), strict=True))
        return Snapshot({part: names.get(part) for part in state}, taken, regions, self._memory, self._rank)

    def _place(self, sources: Mapping[str, list[torch.Tensor]]) -> dict[str, Region]:
        known = self._forms
        if list(known) != list(sources) or not all(known[part].fit(tensors) for part, tensors in sources.items()):
            self.prepare(sum(padded(sum(tensor.nbytes for tensor in tensors)) for tensors in sources.values()))
            self._regions = self._views(sources)
            self._forms = {part: Forms(tensors, DTYPE, SHAPE) for part, tensors in sources.items()}
        return self._regions

    def _views(self, sources: Mapping[str, list[torch.Tensor]]) -> dict[str, Region]:
        """Cut the memory into views. Larger items come first, so that each begins at a multiple of its item size."""
        regions, at = {}, 0
        for part, tensors in sources.items():
            begin, views = at, {}
            for number, tensor in sorted(enumerate(tensors), key=lambda pair: -pair[1].itemsize):
                views[number] = self._memory[at : at + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
                at += tensor.nbytes
            regions[part] = Region(begin, at, [views[number] for number in range(len(tensors))])
            at = begin + padded(at - begin)
        return regions


def _shards_of(part: Part) -> Part:
    """Return ``part`` with the pieces alone that this rank saves."""
    kept = {name: part.tensors[name] for name, piece in part.pieces.items() if piece.saved_here and piece.local.numel()}
    return replace(part, tensors=kept)


def _without_absent(part: Part) -> Part:
    """Return ``part`` without the tensors that are in the files of other ranks alone."""
    absent = [name for name, piece in part.pieces.items() if not piece.saved_here]
    return replace(part, tensors={n: t for n, t in part.tensors.items() if n not in absent}) if absent else part


def _places(part: Part, names: Iterable[str]) -> dict[str, str]:
    """Return the offset of each piece in its whole tensor, as metadata of a file; nothing if all are whole."""
    places = {name: (part.pieces[name].shape, part.pieces[name].offset) for name in names if name in part.pieces}
    return {safetensors.PIECES: json.dumps(places, separators=(",", ":"))} if places else {}


def file_names(parts: Iterable[str], rank: int = 0) -> Iterator[str]:
    """Yield a file name for each part: its own letters where they are harmless, and unique, also across ranks."""
    ending = f".rank-{rank}.safetensors" if rank else ".safetensors"
    taken: set[str] = set()
    for part in parts:
        name = wanted = _UNSAFE.sub("_", part).lstrip(".+-#")[:100] or "part"
        # On some file systems `A` and `a` are one file.
        while name.lower() in taken:
            name = f"{wanted}#{len(taken)}"
        taken.add(name.lower())
        yield f"{name}{ending}"


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if not targets:
        return
    with torch.no_grad():
        torch._foreach_copy_(targets, sources, non_blocking=True)
    # Copies into pinned memory are still under way; training may change their sources from here on.
    in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if in_use and any(source.is_cuda for source in sources):
        torch.cuda.synchronize()


def padded(size: int) -> int:
    """Return the room of ``size`` bytes in an arena."""
    return -(-size // _ALIGN) * _ALIGN
