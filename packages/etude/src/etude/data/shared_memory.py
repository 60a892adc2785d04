"""Passes objects between processes: tensors and arrays through shared memory, all else in a message.

Memory is passed on without a copy. It is reused as soon as the receiver has freed every object of a message, so that
the kernel need not allocate, zero and map it for every batch.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import tempfile
import weakref
from collections import deque
from copyreg import dispatch_table
from multiprocessing import reduction
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Where a part of a message begins: on a line of the processor's cache.
_ALIGNED = 64


class Area:
    """An anonymous file in memory. The receiving process makes it, and the sending one gets it."""

    def __init__(self, handle: int | None = None) -> None:
        self.handle = _nameless() if handle is None else handle

    def map(self, start: int, size: int) -> mmap.mmap:
        return mmap.mmap(self.handle, size, offset=start)

    def close(self) -> None:
        os.close(self.handle)

    def __reduce__(self) -> Any:  # how a process that is not forked gets it
        return _received, (reduction.DupFd(self.handle),)


class Sender:
    """Puts objects into an area. ``free`` lists the places that the receiver no longer needs."""

    def __init__(self, area: Area) -> None:
        self._area, self._end = area, 0
        self._maps: dict[tuple[int, int], mmap.mmap] = {}
        self._free: dict[int, list[int]] = {}

    def free(self, places: list[tuple[int, int]]) -> None:
        for start, size in places:
            self._free.setdefault(size, []).append(start)

    def message(self, value: Any) -> bytes:
        buffers: list[memoryview] = []
        file = io.BytesIO()
        _Pickler(file, buffers).dump(value)
        ends, end = [], 0
        for buffer in buffers:
            ends.append((end, end + buffer.nbytes))
            end += -(-buffer.nbytes // _ALIGNED) * _ALIGNED
        place = self._place(end) if buffers else None
        if place is not None:
            memory = memoryview(self._maps[place])
            for buffer, (begin, finish) in zip(buffers, ends, strict=True):
                memory[begin:finish] = buffer
        return pickle.dumps((place, ends, file.getvalue()))

    def _place(self, size: int) -> tuple[int, int]:
        """Find free memory of that size. Sizes are rounded up, so that batches of similar size reuse it."""
        # At most a quarter of the size, or a page, is wasted.
        grain = max(mmap.ALLOCATIONGRANULARITY, (1 << size.bit_length()) >> 3)
        size = -(-size // grain) * grain
        if self._free.get(size):
            return self._free[size].pop(), size
        place = self._end, size
        _enlarge(self._area.handle, self._end, size)
        self._maps[place] = self._area.map(*place)
        self._end += size
        return place


class Receiver:
    """Reads objects from messages; :meth:`freed` returns the places that were freed since the last call."""

    def __init__(self, area: Area) -> None:
        self._area = area
        self._maps: dict[tuple[int, int], mmap.mmap] = {}
        self._freed: deque[tuple[int, int]] = deque()

    def freed(self) -> list[tuple[int, int]]:
        return [self._freed.popleft() for _ in range(len(self._freed))]

    def value(self, message: bytes) -> Any:
        place, ends, pickled = pickle.loads(message)
        if place is None:
            return pickle.loads(pickled)
        if place not in self._maps:
            self._maps[place] = self._area.map(*place)
        lease = np.frombuffer(self._maps[place], dtype=np.uint8)  # every part holds it, and so keeps the place
        weakref.finalize(lease, self._freed.append, place).atexit = False
        memory = memoryview(lease)  # type: ignore[arg-type]
        # From here on only the parts of the message hold it.
        del lease
        return pickle.loads(pickled, buffers=[memory[begin:end] for begin, end in ends])


class _Pickler(pickle.Pickler):
    """Keeps the memory of tensors and arrays out of the pickle and collects it in ``buffers``."""

    def __init__(self, file: io.BytesIO, buffers: list[memoryview]) -> None:
        super().__init__(file, 5, buffer_callback=self._collect)
        self._buffers = buffers
        # What multiprocessing and torch have registered: tensors that are not plain, sockets, locks.
        self.dispatch_table = dispatch_table | reduction.ForkingPickler._extra_reducers  # type: ignore[attr-defined]

    def _collect(self, buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes:
            self._buffers.append(raw)
        return not raw.nbytes  # true: into the pickle

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not Tensor or not _is_plain(value):
            return NotImplemented
        raw: Any = value.resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(raw), value.dtype, value.shape)


def _is_plain(tensor: Tensor) -> bool:
    simple = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.requires_grad
    return simple and tensor.device.type == "cpu" and tensor.numel() > 0


def _tensor(raw: Any, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("etude-batches")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _received(handle: Any) -> Area:
    return Area(handle.detach())


def _enlarge(handle: int, end: int, size: int) -> None:
    """Allocate the memory now: too little is an error here, but a fatal signal at the first write."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, end, size)
    else:
        os.ftruncate(handle, end + size)
