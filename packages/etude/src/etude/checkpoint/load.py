"""Loads one checkpoint and verifies it: every byte is checked against the manifest before any of it is used."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, Any

from etude.checkpoint import manifest as manifests
from etude.checkpoint.encode import decode
from etude.checkpoint.formats import safetensors
from etude.checkpoint.manifest import Damaged, Manifest, Stored, Withheld
from etude.checkpoint.shapes import require_shapes
from etude.checkpoint.storage.disk import PIECE
from etude.checkpoint.storage.places import Disk
from etude.errors import ResumeError, printable
from etude.errors.spelling import nearest
from etude.fast_dataclass import record
from etude.units import human

MAX_STATE = 1 << 30


@record
class Loaded:
    """A checkpoint in memory: its parts, and what its manifest says."""

    path: str
    manifest: Manifest
    state: dict[str, Any]


def read_manifest(disk: Disk, path: str, *, trust_owner: bool = False) -> Manifest:
    """Return the manifest of the checkpoint at ``path``; an error says what is wrong, without the path."""
    try:
        with disk.open_file(disk.join(path, manifests.NAME)) as file:
            _check_owner(file, manifests.NAME, trust_owner)
            # One byte more shows that it is too large, without reading all of it.
            text = file.read(manifests.MAX_SIZE + 1)
    except FileNotFoundError:
        raise Damaged("it has no manifest.json") from None
    except OSError as error:
        raise _unreadable(manifests.NAME, error) from None
    if len(text) > manifests.MAX_SIZE:
        raise ResumeError("refused: its manifest is too large")
    return manifests.parse(text)


def verify(disk: Disk, path: str, *, trust_owner: bool = False) -> Manifest:
    """Check sizes and checksums of all files; raises for the first that is wrong."""
    manifest = read_manifest(disk, path, trust_owner=trust_owner)
    for name, stored in manifest.files.items():
        with _opened(disk, path, name, stored, trust_owner) as file:
            digest = hashlib.sha256()
            for piece in _pieces(file, name):
                digest.update(piece)
        _check_sum(name, stored, digest.hexdigest())
    return manifest


def load(
    disk: Disk, path: str, *, need: Collection[str] = (), only: Collection[str] | None = None, trust_owner: bool = False
) -> Loaded:
    """Read and verify in one pass. ``need`` names parts that must be there; ``only`` reads these parts alone."""
    manifest = read_manifest(disk, path, trust_owner=trust_owner)
    for part in need:
        if part not in manifest.parts:
            near = nearest(part, list(manifest.parts))
            raise ResumeError(f"it has no {printable(part)} state" + (f" (it has {near})" if near else ""))
    trees = _load_trees(disk, path, manifest, trust_owner)
    state = {}
    for part, name in manifest.parts.items():
        if only is not None and part not in only:
            continue
        files = [one for one in (name, *manifest.shards.get(part, ())) if one is not None]
        read = [_load_tensors(disk, path, one, manifest.files[one], trust_owner) for one in files]
        state[part] = _decoded(part, trees, read)
    if manifest.kind == "full":
        require_shapes(state)
    return Loaded(path, manifest, state)


def _load_trees(disk: Disk, path: str, manifest: Manifest, trust_owner: bool) -> dict[str, Any]:
    stored = manifest.files["state.json"]
    if stored.size > MAX_STATE:
        raise ResumeError("refused: state.json is too large")
    with _opened(disk, path, "state.json", stored, trust_owner) as file:
        text = b"".join(_pieces(file, "state.json"))
    _check_sum("state.json", stored, hashlib.sha256(text).hexdigest())
    try:
        trees = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged("state.json is not JSON") from None
    if not isinstance(trees, dict):
        raise Damaged("state.json is not a JSON object")
    return trees


def _load_tensors(disk: Disk, path: str, name: str, stored: Stored, trust_owner: bool) -> safetensors.Read:
    digest, metadata = hashlib.sha256(), dict[str, str]()
    with _opened(disk, path, name, stored, trust_owner) as file:
        try:
            named = safetensors.read(file, size=stored.size, watch=digest.update, metadata=metadata)
        except ResumeError as error:
            raise Damaged(f"{name}: {error}") from None
        except OSError as error:
            raise _unreadable(name, error) from None
    _check_sum(name, stored, digest.hexdigest())
    return named, metadata


def _decoded(part: str, trees: Mapping[str, Any], files: Iterable[safetensors.Read]) -> Any:
    try:
        return decode(trees[part], safetensors.put_together(files))
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise Damaged(f"the state of {printable(part)} is damaged ({printable(repr(error))[:80]})") from None


def _opened(disk: Disk, path: str, name: str, stored: Stored, trust_owner: bool) -> IO[bytes]:
    try:
        file = disk.open_file(disk.join(path, name))
    except FileNotFoundError:
        raise Damaged(f"{name} is missing") from None
    except OSError as error:
        raise _unreadable(name, error) from None
    try:
        _check_owner(file, name, trust_owner)
        size = safetensors.size_of(file)
        if size != stored.size:
            raise Damaged(f"{name} has {human(size)} of {human(stored.size)} ({size} of {stored.size} bytes)")
    except BaseException:
        file.close()
        raise
    return file


def _check_owner(file: IO[bytes], name: str, trust_owner: bool) -> None:
    """Refuse a file that belongs to another user, who may have planted it."""
    try:
        # Of the open file: the one at that path may be another by now.
        owner = os.fstat(file.fileno()).st_uid
    except (OSError, AttributeError):  # a remote file has no descriptor
        return
    if owner != os.geteuid() and not trust_owner:
        raise Withheld(f"refused: {name} belongs to another user (uid {owner}); --trust-owner accepts it")


def _check_sum(name: str, stored: Stored, digest: str) -> None:
    if digest != stored.sha256:
        raise Damaged(f"checksum of {name} differs")


def _pieces(file: IO[bytes], name: str) -> Iterator[bytes]:
    try:
        while piece := file.read(PIECE):
            yield piece
    except OSError as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str, error: OSError) -> ResumeError:
    if error.errno == errno.ELOOP:
        return ResumeError(f"refused: {name} is a link")
    code = errno.errorcode.get(error.errno or 0, "")
    return ResumeError(f"{name} cannot be read: {code} {error.strerror or error}".replace("  ", " "))
