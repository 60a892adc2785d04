"""Keeps what people say about a run, in its folder: tags, a note, and whether it is archived."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from etude.checkpoint.storage.lock import Lock
from etude.config import run_files, shapes
from etude.config.files import read_json, replace_text
from etude.errors import UserError, printable
from etude.fast_dataclass import record
from etude.report.status import RUNNING, state_of

FILE = "notes.json"
_TAG = re.compile(r"[^\s,/]+")


@record
class Notes:
    """What people say about a run."""

    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False


def read_notes(folder: str | os.PathLike[str]) -> Notes:
    """Return the notes of a run; none where there is no file, or one that cannot be read."""
    found = read_json(os.path.join(folder, FILE))
    try:
        tags, note = tuple(shapes.rows(found.get("tags", []), shapes.text)), shapes.text(found.get("note", ""))
    except (TypeError, ValueError):
        return Notes()
    return Notes(tags, note, found.get("archived") is True)


def write_notes(folder: str | os.PathLike[str], notes: Notes) -> None:
    """Write the notes of a run, or remove the file if nothing is left to say."""
    for tag in notes.tags:
        if not _TAG.fullmatch(tag):
            raise UserError(f"{printable(tag)!r} is no tag: a tag has no spaces, commas and slashes")
    path = Path(folder, FILE)
    if notes == Notes():
        path.unlink(missing_ok=True)
        return
    values = {"tags": list(notes.tags), "note": notes.note, "archived": notes.archived}
    replace_text(path, json.dumps(values, ensure_ascii=False) + "\n")


def delete_run(folder: Path) -> None:
    """Delete a run's folder with its checkpoints, unless a process trains in it or it is a link."""
    if folder.is_symlink():
        raise UserError(f"{printable(str(folder))} is a link; delete it yourself")
    if state_of(folder, run_files.status(folder)) == RUNNING:
        raise UserError(f"{printable(str(folder))} is running; it was not deleted")
    held = Lock(folder)  # raises while a process trains there
    try:
        # Renamed first: a half-deleted run is none, and nobody starts in it.
        aside = folder.with_name(f".{folder.name}.deleted{os.getpid()}")
        folder.rename(aside)
    finally:
        held.release()
    shutil.rmtree(aside)
