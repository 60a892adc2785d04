"""Reads checkpoint files of other systems as data: ``.pth``, ``.ckpt``, ``.bin``, ``.safetensors``.

The first bytes of a file decide its format, never its name. Pickles, zipped or in torch's older format, go through a
reader that knows a short table of names (``safe_pickle.py``) and refuses every other, so that opening an untrusted file
runs no code. ``trust=True`` passes one file to torch's own reader, which runs whatever the pickle names.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from typing import IO, Any

import torch

from etude.checkpoint.formats import background, safe_pickle, safetensors
from etude.checkpoint.storage import trust as trusting
from etude.checkpoint.storage.places import LocalDisk, locate
from etude.errors import ResumeError, printable

#: The pickled part of a file holds names and shapes; more than this is no honest one.
MAX_PICKLE = 1 << 30
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001


def read(path: str | os.PathLike[str], *, trust: bool = False) -> dict[Any, Any]:
    """Return the content of ``path`` on the CPU: a dict of plain data and tensors.

    Raises :class:`~etude.errors.ResumeError` for a file that is damaged, of no known kind, or names something outside
    the table (``refused: global os.system``).
    """
    if trust or trusting.is_given():
        print(f"etude: trusting {printable(os.fspath(path))}: code in it may run", file=sys.stderr)
        return _as_dict(_opened(path, lambda file: torch.load(file, map_location="cpu", weights_only=False)), path)
    return _as_dict(_opened(path, lambda file: _reader(file)(file)), path)


def skim(path: str | os.PathLike[str]) -> dict[Any, Any]:
    """Return the same without the bytes of the tensors, which are on torch's ``meta`` device: for large files."""
    return _as_dict(_opened(path, lambda file: _reader(file, skim=True)(file)), path)


def _opened(path: str | os.PathLike[str], use: Callable[[IO[bytes]], Any]) -> Any:
    """Apply ``use`` to the file at ``path``, which may be in the making; every error names that path."""
    background.wait()
    name = os.fspath(path)
    place, where = locate(name)
    try:
        if isinstance(place, LocalDisk):
            where = os.path.realpath(where)  # a user's own link is followed; its target must be a file
            if os.path.isdir(where):
                raise ResumeError(_about_folder(where))
        with place.open_file(where) as raw:
            # A raw file may return less than it is asked for, and pickles read a byte at a time.
            return use(io.BufferedReader(raw) if isinstance(raw, io.RawIOBase) else raw)
    except safe_pickle.Refused as error:
        raise ResumeError(f"{printable(name)}: {error}. {_REFUSED}") from None
    except ResumeError as error:
        raise ResumeError(f"{printable(name)}: {error}") from None
    except FileNotFoundError:
        raise ResumeError(f"{printable(name)}: no such file") from None
    except Exception as error:  # whatever a damaged file makes the readers trip over
        short = printable(f"{type(error).__name__}: {error}")[:200]
        raise ResumeError(f"{printable(name)}: damaged or not a checkpoint ({short})") from error


_REFUSED = "A checkpoint does not need it, so reading stopped here and nothing in it was run. " + trusting.ADVICE


def _reader(file: IO[bytes], *, skim: bool = False) -> Callable[[IO[bytes]], Any]:
    start = file.read(16)
    file.seek(0)
    if start.startswith(b"PK\x03\x04"):
        return partial(read_zip, skim=skim)
    # a length of 128 begins like a pickle; a pickle's first bytes are a length beyond the file
    fits = int.from_bytes(start[:8], "little") <= safetensors.size_of(file)
    if start[8:9] == b"{" and (fits or start[:1] != b"\x80"):
        return safetensors.skim if skim else safetensors.read
    if start[:1] == b"\x80":
        return partial(_read_legacy, skim=skim)
    if not start:
        raise ResumeError("the file is empty")
    raise ResumeError("neither a torch file nor safetensors")


def _about_folder(name: str) -> str:
    if os.path.exists(os.path.join(name, ".metadata")):
        return (
            "a folder of torch.distributed.checkpoint, where a file is needed; "
            "`etude ckpt convert` makes one of it without running its .metadata, which is a pickle"
        )
    return "a folder, where a file is needed"


def _as_dict(value: Any, path: str | os.PathLike[str]) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise NoMapping(f"{printable(os.fspath(path))}: holds a {type(value).__name__}, where a dict is needed")
    return value


class NoMapping(ResumeError, RuntimeError):
    """A file that does not hold a state; other systems raise ``RuntimeError``."""


class Unpickler(pickle.Unpickler):
    """Reads pickles with the table of ``safe_pickle`` only, and storages through ``storage(saved_id)``."""

    def __init__(self, file: Any, storage: Callable[[tuple[Any, ...]], Any] | None = None) -> None:
        # As torch.load has it: the texts of Python 2 are bytes.
        super().__init__(file, encoding="utf-8")
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        return safe_pickle.find(module, name)

    def persistent_load(self, saved_id: Any) -> Any:
        if self._storage is None or not isinstance(saved_id, tuple) or saved_id[0] not in ("storage", b"storage"):
            raise ResumeError("refused: an outside reference")
        return self._storage(saved_id)


# -- torch's zip files -------------------------------------------------------------------------------------------------


def read_zip(file: IO[bytes], *, skim: bool = False) -> Any:
    """Read what ``torch.save`` put into an open file."""
    with zipfile.ZipFile(file) as archive:
        prefix = _check_archive(archive, safetensors.size_of(file))
        loaded: dict[str, torch.Tensor] = {}

        def storage(saved_id: tuple[Any, ...]) -> torch.Tensor:
            _, kind, key, _, numel = saved_id[:5]
            if key not in loaded:
                loaded[key] = _zip_storage(archive, f"{prefix}data/{key}", kind, int(numel), skim)
            return loaded[key]

        with archive.open(f"{prefix}data.pkl") as content:
            return safe_pickle.plain(Unpickler(io.BytesIO(content.read(MAX_PICKLE)), storage).load())


def _check_archive(archive: zipfile.ZipFile, size: int) -> str:
    """Return the folder inside the archive; refuse what torch never writes (compression, overlaps, code)."""
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ResumeError("refused: a compressed archive")
    if sum(entry.file_size for entry in entries) > size:
        raise ResumeError("refused: the archive's entries are larger than the archive")
    names = [entry.filename for entry in entries]
    if any("/code/" in name or name.endswith("constants.pkl") for name in names):
        raise ResumeError("a TorchScript program, not a checkpoint")
    found = [name for name in names if name == "data.pkl" or name.endswith("/data.pkl")]
    if not found:
        raise ResumeError("a zip file, but not one of torch")
    order = found[0].removesuffix("data.pkl") + "byteorder"
    if order in names and archive.read(order) not in (b"little", b"little\n"):
        raise ResumeError("written on a machine of the other byte order")
    return found[0].removesuffix("data.pkl")


def _zip_storage(archive: zipfile.ZipFile, name: str, kind: Any, numel: int, skim: bool) -> torch.Tensor:
    dtype = _dtype_of(kind)
    if archive.getinfo(name).file_size < numel * dtype.itemsize or numel < 0:
        raise ResumeError(f"the storage {printable(name)} is cut short")
    if skim:
        return torch.empty(numel, dtype=dtype, device="meta")
    made = torch.empty(numel, dtype=dtype)
    with archive.open(name) as content:
        safetensors.fill(content, safetensors.bytes_of(made))
    return made


def _dtype_of(kind: Any) -> torch.dtype:
    if not isinstance(kind, torch.dtype):
        raise ResumeError("refused: a storage of an unknown kind")
    return kind


# -- torch's files from before 1.6 -------------------------------------------------------------------------------------


def _read_legacy(file: IO[bytes], *, skim: bool = False) -> Any:
    """Read magic number, protocol and machine, then the object, the keys of its storages, and their bytes, in this
    order."""
    if Unpickler(file).load() != _LEGACY_MAGIC:
        raise ResumeError("a pickle, but not one of torch")
    if Unpickler(file).load() != _LEGACY_PROTOCOL or not Unpickler(file).load().get("little_endian", True):
        raise ResumeError("a torch file of an unknown protocol or byte order")
    size, device = safetensors.size_of(file), "meta" if skim else "cpu"
    made: dict[str, torch.Tensor] = {}
    left = size

    def storage(saved_id: tuple[Any, ...]) -> torch.Tensor:
        nonlocal left
        _, kind, key, _, numel, view = (*saved_id, None)[:6]
        dtype = _dtype_of(kind)
        if str(key) not in made:
            left -= int(numel) * dtype.itemsize
            if int(numel) < 0 or left < 0:
                raise ResumeError("refused: a storage larger than the file")
            made[str(key)] = torch.empty(int(numel), dtype=dtype, device=device)
        whole = made[str(key)]
        if view is None:
            return whole
        _, offset, length = view
        return whole[int(offset) : int(offset) + int(length)]

    content = Unpickler(file, storage).load()
    if skim:
        return safe_pickle.plain(content)
    for key in Unpickler(file).load():
        target = made[str(key)]
        if int.from_bytes(file.read(8), "little") != target.numel():
            raise ResumeError("a storage does not have its declared size")
        safetensors.fill(file, safetensors.bytes_of(target))
    return safe_pickle.plain(content)
