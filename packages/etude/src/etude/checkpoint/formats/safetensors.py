"""Reads and writes the safetensors format directly: from buffers without a copy, into tensors with their own memory.

A file is eight bytes of length, a JSON header, and the tensors' bytes without gaps. Reading checks every number in the
header against the size of the file before anything is allocated.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any

import torch

from etude.checkpoint.storage.disk import PIECE
from etude.errors import ResumeError, printable

MAX_HEADER = 100 << 20
#: The entry of a file's metadata that says where in which whole tensor the pieces in it lie: name → (shape, offset).
PIECES = "$pieces"
#: What a file holds: its tensors, and its metadata.
Read = tuple[dict[str, torch.Tensor], dict[str, str]]
_CODES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "C64": "complex64",
}  # fmt: skip
DTYPES: dict[str, torch.dtype] = {code: getattr(torch, name) for code, name in _CODES.items()}
CODES: dict[torch.dtype, str] = {dtype: code for code, dtype in DTYPES.items()}


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor, as writable bytes."""
    # As bytes: numpy has no bfloat16 and no float8.
    array: Any = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def header(layout: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """Return length and header for tensors that follow in the order of ``layout``; padded so that the data is
    aligned."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, (dtype, shape) in layout.items():
        end = begin + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write(file: IO[bytes], named: Mapping[str, torch.Tensor], *, metadata: Mapping[str, str] | None = None) -> None:
    """Write ``named`` to an open file. Larger items come first, so that each begins at a multiple of its item size."""
    order = sorted(named, key=lambda name: (-named[name].dtype.itemsize, name))
    kept = {name: named[name].detach().cpu().contiguous() for name in order}
    unknown = [name for name in order if kept[name].dtype not in CODES]
    if unknown:
        raise ValueError(f"{unknown[0]}: safetensors has no {kept[unknown[0]].dtype}")
    file.write(header({name: (t.dtype, tuple(t.shape)) for name, t in kept.items()}, metadata or {}))
    for tensor in kept.values():
        file.write(bytes_of(tensor))


def read(
    file: IO[bytes],
    *,
    size: int | None = None,
    watch: Callable[[memoryview], Any] | None = None,
    metadata: dict[str, str] | None = None,
) -> dict[str, torch.Tensor]:
    """Return the tensors of an open file, each in its own memory.

    ``watch`` sees all bytes, in order; ``metadata`` gets what the header holds besides the tensors.
    """
    size = size_of(file) if size is None else size
    length, text = _read_header(file, size)
    if watch is not None:
        watch(memoryview(length + text))
    made: dict[str, torch.Tensor] = {}
    layout = parse_header(text, size - 8 - len(text))
    if metadata is not None:
        metadata.update(json.loads(text).get("__metadata__") or {})
    for name, (dtype, shape) in layout.items():
        made[name] = torch.empty(shape, dtype=dtype)
        fill(file, bytes_of(made[name]), watch)
    return made


def skim(file: IO[bytes]) -> dict[str, torch.Tensor]:
    """Return names, dtypes and shapes only: tensors on torch's ``meta`` device."""
    size = size_of(file)
    _, text = _read_header(file, size)
    layout = parse_header(text, size - 8 - len(text))
    return {name: torch.empty(shape, dtype=dtype, device="meta") for name, (dtype, shape) in layout.items()}


def size_of(file: IO[bytes]) -> int:
    """Return the size of an open file on any file system; the position stays."""
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end


def _read_header(file: IO[bytes], size: int) -> tuple[bytes, bytes]:
    length = file.read(8)
    count = int.from_bytes(length, "little")
    if len(length) < 8 or count > min(MAX_HEADER, size - 8):
        raise ResumeError("the safetensors header is cut short or too large")
    text = file.read(count)
    if len(text) < count:
        raise ResumeError("the safetensors header is cut short")
    return length, text


def parse_header(text: bytes, room: int) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Return names, dtypes and shapes in the order of the data, which must fill ``room`` bytes without gap or
    overlap."""
    try:
        entries = json.loads(text)
        entries.pop("__metadata__", None)
        spans = sorted((*entry["data_offsets"], name) for name, entry in entries.items())
        layout = {name: (DTYPES[entries[name]["dtype"]], tuple(entries[name]["shape"])) for _, _, name in spans}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ResumeError(f"the safetensors header is damaged ({printable(str(error))[:80]})") from None
    at = 0
    for begin, end, name in spans:
        dtype, shape = layout[name]
        # `true` is an int in Python.
        if not all(type(n) is int and n >= 0 for n in (begin, end, *shape)):
            raise ResumeError(f"the safetensors header is damaged ({printable(name)})")
        if begin != at or end - begin != math.prod(shape) * dtype.itemsize:
            raise ResumeError(f"the safetensors header does not fit its data ({printable(name)})")
        at = end
    if at != room:
        raise ResumeError(f"{room} bytes of data where the safetensors header says {at}")
    return layout


def put_together(files: Iterable[Read]) -> dict[str, torch.Tensor]:
    """Return the tensors of several files, and join those that are split into pieces."""
    made: dict[str, torch.Tensor] = {}
    found: dict[str, list[tuple[torch.Tensor, list[int]]]] = {}
    shapes: dict[str, list[int]] = {}
    for named, metadata in files:
        places = json.loads(metadata.get(PIECES, "{}"))
        for name, tensor in named.items():
            if name in places:
                shapes[name], offset = places[name]
                found.setdefault(name, []).append((tensor, offset))
            else:
                made[name] = tensor
    for name, shape in shapes.items():
        made[name] = _joined(name, shape, found.pop(name))
    return made


def _joined(name: str, shape: list[int], pieces: list[tuple[torch.Tensor, list[int]]]) -> torch.Tensor:
    if sum(tensor.numel() for tensor, _ in pieces) != math.prod(shape):
        raise ResumeError(f"the pieces of {printable(name)} do not make up the whole")
    whole = torch.empty(shape, dtype=pieces[0][0].dtype)
    for tensor, offset in pieces:
        whole[tuple(slice(at, at + size) for at, size in zip(offset, tensor.shape, strict=True))] = tensor
    return whole


def fill(file: IO[bytes], view: memoryview, watch: Callable[[memoryview], Any] | None = None) -> None:
    """Read as many bytes as ``view`` has; ``watch`` sees them."""
    got = 0
    while got < len(view):
        count = file.readinto(view[got : got + PIECE])  # type: ignore[attr-defined]
        if not count:
            raise ResumeError("the file is cut short")
        if watch is not None:
            watch(view[got : got + count])
        got += count
