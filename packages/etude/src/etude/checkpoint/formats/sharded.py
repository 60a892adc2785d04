"""Reads folders of ``torch.distributed.checkpoint`` as data. Their ``.metadata`` is a pickle; nothing in it is run.

.. code-block:: text

    .metadata         names, shapes, dtypes, and where in which file each piece lies
    __0_0.distcp      pieces one after the other, each as ``torch.save`` writes it; one file or more per process
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import torch

from etude.checkpoint.formats import foreign, safe_pickle
from etude.checkpoint.formats.safe_pickle import Record
from etude.checkpoint.manifest import is_plain_name
from etude.checkpoint.storage import disk
from etude.errors import ResumeError, printable

NAME = ".metadata"


def is_sharded(folder: str) -> bool:
    """Return whether ``folder`` looks as if ``torch.distributed.checkpoint`` had written it."""
    return os.path.isfile(os.path.join(folder, NAME))


def read(folder: str, *, skim: bool = False) -> dict[Any, Any]:
    """Return the content of such a folder, shards joined, nested as it was saved. ``skim``: tensors by shape alone."""
    try:
        return _nested(*_read(folder, skim))
    except safe_pickle.Refused as error:
        raise ResumeError(
            f"{printable(folder)}: a folder of torch.distributed.checkpoint: {error} in its {NAME} or pieces; "
            "nothing in it was run"
        ) from None
    except ResumeError as error:
        raise ResumeError(f"{printable(folder)}: a folder of torch.distributed.checkpoint: {error}") from None
    except Exception as error:  # whatever a damaged folder makes the readers trip over
        short = printable(f"{type(error).__name__}: {error}")[:160]
        raise ResumeError(f"{printable(folder)}: a damaged folder of torch.distributed.checkpoint ({short})") from error


def _read(folder: str, skim: bool) -> tuple[dict[str, Any], Mapping[str, Any]]:
    with disk.open_file(os.path.join(folder, NAME)) as file:
        about = _Unpickler(io.BytesIO(file.read(foreign.MAX_PICKLE))).load()
    if not isinstance(about, Record) or "state_dict_metadata" not in about.fields:
        raise ResumeError(f"its {NAME} is not one of torch's")
    described = about.fields["state_dict_metadata"]
    where = {_key(index): info.fields for index, info in (about.fields.get("storage_data") or {}).items()}
    _check_room(folder, described)
    made = {}
    for name, one in described.items():
        if "size" not in one.fields:
            made[name] = _piece(folder, where, (name, ()))
        else:
            made[name] = _tensor(folder, where, name, one, skim)
    return made, about.fields.get("planner_data") or {}


def _check_room(folder: str, described: Mapping[str, Record]) -> None:
    """Compare what the tensors would take with the size of the files, before anything is allocated."""
    room = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
    need = sum(
        math.prod(one.fields["size"]) * one.fields["properties"].dtype.itemsize
        for one in described.values()
        if "size" in one.fields
    )
    if need > room:
        raise ResumeError(f"its tensors would take {need} bytes, its files have {room}")


def _tensor(folder: str, where: Mapping[Any, Any], name: str, one: Record, skim: bool) -> torch.Tensor:
    made = torch.empty(tuple(one.fields["size"]), dtype=one.fields["properties"].dtype, device="meta" if skim else None)
    for chunk in () if skim else one.fields["chunks"]:
        begin, sizes = chunk.fields["offsets"], chunk.fields["sizes"]
        piece = _piece(folder, where, (name, tuple(begin)))
        if not isinstance(piece, torch.Tensor) or tuple(piece.shape) != tuple(sizes):
            raise ResumeError(f"a piece of {printable(name)} is not what {NAME} says")
        made[tuple(slice(at, at + size) for at, size in zip(begin, sizes, strict=True))] = piece
    return made


def _piece(folder: str, where: Mapping[Any, Any], key: tuple[str, tuple[int, ...]]) -> Any:
    name, info = printable(key[0]), where.get(key)
    if info is None:
        raise ResumeError(f"{NAME} does not say where {name} is")
    if info.get("transform_descriptors"):
        raise ResumeError(f"{name} is transformed ({printable(str(info['transform_descriptors']))[:60]}), not plain")
    file_name, begin, length = str(info["relative_path"]), int(info["offset"]), int(info["length"])
    # The name comes out of a pickle, and could lead anywhere on the disk.
    if not is_plain_name(file_name):
        raise ResumeError(f"refused: {NAME} names {printable(file_name)[:80]!r}, a file outside of it")
    try:
        with disk.open_file(os.path.join(folder, file_name)) as file:
            data = _span(file, begin, length)
    except FileNotFoundError:
        raise ResumeError(f"{printable(file_name)} is missing") from None
    if len(data) < length:
        raise ResumeError(f"{printable(file_name)} is cut short")
    return foreign.read_zip(io.BytesIO(data))


def _span(file: IO[bytes], begin: int, length: int) -> bytes:
    file.seek(begin)
    pieces = []
    while length > 0 and (piece := file.read(min(length, disk.PIECE))):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _nested(flat: Mapping[str, Any], paths: Mapping[str, Any]) -> dict[Any, Any]:
    """Return flattened names in their original nesting, if the file records it."""
    made: dict[Any, Any] = {}
    for name, value in flat.items():
        path = paths.get(name) if isinstance(paths, Mapping) else None
        *above, last = path if isinstance(path, tuple) and path else (name,)
        place = made
        for step in above:
            place = place.setdefault(step, {})
        place[last] = value
    return {key: _with_lists(value) for key, value in made.items()}


def _with_lists(value: Any) -> Any:
    """Turn mappings with the keys 0, 1, 2 … back into lists."""
    if not isinstance(value, dict):
        return value
    items = {key: _with_lists(item) for key, item in value.items()}
    return list(items.values()) if items and list(items) == list(range(len(items))) else items


# -- the names in .metadata --------------------------------------------------------------------------------------------


class _Properties(Record):
    """Of a tensor's properties only the dtype matters here."""

    dtype: torch.dtype

    def __setstate__(self, state: Any) -> None:
        self.dtype = state[0]
        if not isinstance(self.dtype, torch.dtype):
            raise ResumeError("refused: a tensor of an unknown kind")


def _key(index: Record) -> tuple[str, tuple[int, ...]]:
    return str(index.fields["fqn"]), tuple(index.fields.get("offset") or ())


class _Unpickler(foreign.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _TABLE.get((module, name)) or super().find_class(module, name)


def _first(*values: Any) -> Any:
    return values[0] if values else None


def _table() -> Iterator[tuple[tuple[str, str], Callable[..., Any]]]:
    inside = "torch.distributed.checkpoint.metadata"
    for name in (
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "StorageMeta",
        "MetadataIndex",
    ):  # fmt: skip
        yield (inside, name), Record
    yield (inside, "TensorProperties"), _Properties
    yield (inside, "_MEM_FORMAT_ENCODING"), _first
    yield ("torch.distributed.checkpoint.filesystem", "_StorageInfo"), Record
    yield ("torch.serialization", "_get_layout"), _first
    for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath"):
        yield ("pathlib", name), lambda *parts: "/".join(map(str, parts))


_TABLE = dict(_table())
