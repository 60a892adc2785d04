"""Stores what an exact resume needs beyond mmcv's layout: generators, the position in the data and in the workflow.

A checkpoint carries it under the top-level key ``etude``, which mmcv does not look at. What happens between the save
and the end of its stage (an evaluation, say) is noted afterwards in a small file beside it; when that file is missing,
the run died in between, and a resumed run first does again what was left to do.
"""

from __future__ import annotations

import glob
import io
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from etude.checkpoint.formats import foreign
from etude.checkpoint.storage import disk
from etude.data.resume import Snapshot
from etude.errors import ResumeError

KEY = "etude"
VERSION = 1
#: Folder beside the checkpoints for the notes about them.
NOTES = ".etude"


def rng_state() -> dict[str, Any]:
    """Return the states of all generators of this process, as plain data and tensors."""
    return Snapshot.take().state_dict()


def new_id() -> str:
    return uuid.uuid4().hex


def as_bytes(note: Mapping[str, Any]) -> bytes:
    """Return a note as torch writes it, so that nothing changes it until it is written."""
    made = io.BytesIO()
    torch.save(dict(note), made)
    return made.getvalue()


def write_note(path: str, note: bytes) -> None:
    """Note what the stage of the checkpoint at ``path``, if it is there, has changed since it was saved."""
    if os.path.isfile(path):
        _write(_note_path(path), note)


def read_note(path: str, identity: str) -> dict[str, Any] | None:
    """Return the note about the checkpoint at ``path``, if there is one and it is about this very file."""
    return _read(_note_path(os.path.realpath(path)), "id", identity)


def remove_note(path: str) -> None:
    disk.remove(_note_path(path))


def write_own(path: str, rank: int, state: Mapping[str, Any]) -> None:
    """Write what one of the other ranks knows of the checkpoint that the first one saved at ``path``."""
    _write(_own_path(path, rank), as_bytes(state))


def read_own(path: str, rank: int, position: Sequence[Any]) -> dict[str, Any] | None:
    """Return the own part of ``rank``, if there is one and it was saved at the same position."""
    return _read(_own_path(os.path.realpath(path), rank), "position", list(position))


def remove_all(path: str) -> None:
    """Remove the note about a checkpoint that was deleted, and the other ranks' parts of it."""
    remove_note(path)
    for part in glob.glob(glob.escape(_own_path(path, 0)[:-1]) + "*"):
        disk.remove(part)


def _write(target: str, content: bytes) -> None:
    """Write a file beside a checkpoint, with the permissions of the checkpoint."""
    disk.make_folder(os.path.dirname(target), mode=0o777)
    disk.write_atomically(target, lambda file: file.write(content), mode=0o666)


def _read(target: str, key: str, wanted: Any) -> dict[str, Any] | None:
    """Return what such a file holds if it belongs to the checkpoint: if ``key`` in it is as ``wanted``."""
    try:
        found = foreign.read(target) if os.path.isfile(target) else {}
    except ResumeError:
        return None
    return found if found.get(key) == wanted else None


def _own_path(path: str, rank: int) -> str:
    return f"{_note_path(path).removesuffix('.note')}.rank{rank}"


def _note_path(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, NOTES, f"{name}.note")
