"""Copies a state into host memory that every save reuses, so that training waits for one copy only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from etude.checkpoint import safetensors
from etude.checkpoint.encode import Part, encode
from etude.dist.shards import Piece

_ALIGN = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_.#+-]+")
_Layout = tuple[tuple[str, tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]], ...]


@dataclass(frozen=True)
class Region:
    """The location of one part's tensors in the arena, in the order they are written."""

    begin: int
    end: int
    views: dict[str, torch.Tensor]
    #: The header of the file with the metadata that it was made for.
    _heads: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def head(self, metadata: dict[str, str]) -> bytes:
        """Return the header of the part's file; made once for a state that stays as it is."""
        if not self._heads or self._heads[0][0] != metadata:
            layout = {name: (view.dtype, tuple(view.shape)) for name, view in self.views.items()}
            self._heads[:] = [(metadata, safetensors.header(layout, metadata))]
        return self._heads[0][1]


@dataclass(frozen=True)
class File:
    """A file to be written: its name and its bytes, piece after piece."""

    name: str
    pieces: tuple[memoryview, ...]

    @property
    def size(self) -> int:
        return sum(len(piece) for piece in self.pieces)


@dataclass(frozen=True)
class Snapshot:
    """Everything that a save writes, independent of what training does from now on."""

    files: tuple[File, ...]
    #: Part → the file of its tensors, or None.
    parts: Mapping[str, str | None]
    regions: Mapping[str, Region]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def unsound(self, part: str, names: Iterable[str]) -> str | None:
        """Return the first of ``names`` in ``part`` that is not finite. Needs no extra memory."""
        views = self.regions[part].views if part in self.regions else {}
        for name in names:
            view = views.get(name)
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
        self._layout: _Layout = ()
        self._regions: dict[str, Region] = {}

    def prepare(self, size: int) -> None:
        """Allocate and touch ``size`` bytes: the first touch of fresh memory costs more than the copy."""
        if self._memory.numel() < size:
            self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=torch.cuda.is_available()).zero_()
            self._layout = ()

    def take(self, state: Mapping[str, Any]) -> Snapshot:
        """Copy ``state`` (part → tree). The snapshot is good until the next call."""
        parts = {name: encode(name, value) for name, value in state.items()}
        if self._rank:
            for made in parts.values():
                made.tensors = {name: made.tensors[name] for name, piece in made.pieces.items() if _is_saved(piece)}
        regions = self._place(parts)
        targets = [view for region in regions.values() for view in region.views.values()]
        sources = [parts[part].tensors[name] for part, region in regions.items() for name in region.views]
        _copy(targets, sources)
        names = dict(zip(regions, file_names(regions, self._rank), strict=True))
        files = tuple(self._files(parts, regions, names))
        return Snapshot(files, {part: names.get(part) for part in state}, regions)

    def _place(self, parts: Mapping[str, Part]) -> dict[str, Region]:
        layout = tuple(
            (part, tuple((name, t.dtype, t.shape) for name, t in in_order(made.tensors)))
            for part, made in parts.items()
            if made.tensors
        )
        if layout != self._layout:
            self.prepare(sum(_padded(_size(entries)) for _, entries in layout))
            self._regions, self._layout = self._views(layout), layout
        return self._regions

    def _views(self, layout: _Layout) -> dict[str, Region]:
        regions, at = {}, 0
        for part, entries in layout:
            begin, views = at, {}
            for name, dtype, shape in entries:
                size = math.prod(shape) * dtype.itemsize
                views[name] = self._memory[at : at + size].view(dtype).view(shape)
                at += size
            regions[part] = Region(begin, at, views)
            at = begin + _padded(at - begin)
        return regions

    def _files(
        self, parts: Mapping[str, Part], regions: Mapping[str, Region], names: Mapping[str, str]
    ) -> Iterator[File]:
        whole = safetensors.bytes_of(self._memory)
        for part, region in regions.items():
            metadata = parts[part].aliases | _places(parts[part], region.views)
            yield File(names[part], (memoryview(region.head(metadata)), whole[region.begin : region.end]))
        if self._rank:
            return
        trees = {part: made.tree for part, made in parts.items()}
        yield File("state.json", (memoryview(json.dumps(trees, ensure_ascii=False, allow_nan=False).encode()),))


def _is_saved(piece: Piece) -> bool:
    return piece.saved_here and piece.local.numel() > 0


def _places(part: Part, names: Iterable[str]) -> dict[str, str]:
    """Return the offset of each piece in its whole tensor, as metadata of a file; nothing if all are whole."""
    places = {name: (part.pieces[name].shape, part.pieces[name].offset) for name in names if name in part.pieces}
    return {safetensors.PIECES: json.dumps(places, separators=(",", ":"))} if places else {}


def in_order(named: Mapping[str, torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
    """Return larger items first, so that every tensor of a file begins at a multiple of its item size."""
    return sorted(named.items(), key=lambda item: -item[1].dtype.itemsize)


def file_names(parts: Iterable[str], rank: int = 0) -> Iterator[str]:
    """Yield a file name for each part: its own letters where they are harmless, and unique, also across ranks."""
    ending = f".rank-{rank}.safetensors" if rank else ".safetensors"
    taken: set[str] = set()
    for part in parts:
        name = wanted = _UNSAFE.sub("_", part).lstrip(".+-#")[:100] or "part"
        while name.lower() in taken:
            name = f"{wanted}#{len(taken)}"
        taken.add(name.lower())
        yield f"{name}{ending}"


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if not targets:
        return
    with torch.no_grad():
        torch._foreach_copy_(targets, sources, non_blocking=True)
    if any(source.is_cuda for source in sources):
        torch.cuda.synchronize()


def _size(entries: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]) -> int:
    return sum(math.prod(shape) * dtype.itemsize for _, dtype, shape in entries)


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
