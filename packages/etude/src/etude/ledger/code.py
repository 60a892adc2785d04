"""Finds code of a run that has changed since it began, and puts the recorded text back for a replay."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from etude.config.files import read_json
from etude.session.folder import config_of


def changed_code(folder: Path) -> list[str]:
    """Return the files of the project whose text is no longer the one that the run was started with."""
    return sorted(name for name, _ in _changed(folder, _root_of(folder)))


@contextmanager
def code_of(folder: Path) -> Iterator[Path | None]:
    """Yield a copy of the config's folder with the code that the run was started with; None if nothing has changed.

    All other files of the folder are links. Modules are imported from the copy first while the context is open.
    """
    root = _root_of(folder)
    changed = dict(_changed(folder, root))
    if not changed:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="etude-code-") as made:
        _mirror(root, Path(made), changed)
        sys.path.insert(0, made)
        try:
            yield Path(made)
        finally:
            sys.path.remove(made)


def moved(files: tuple[str, ...], folder: Path, to: Path) -> tuple[str, ...]:
    """Return the paths of files with the config's folder replaced by ``to``."""
    root = str(_root_of(folder))
    absolute = (os.path.abspath(file) for file in files)
    return tuple(str(to) + file.removeprefix(root) if file.startswith(f"{root}{os.sep}") else file for file in absolute)


def _root_of(folder: Path) -> Path:
    return Path(os.path.abspath(config_of(folder))).parent


def _changed(folder: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield path and recorded text of the files that differ now; a text with redactions cannot be put back."""
    for name, text in read_json(folder / "code.json").items():
        if not isinstance(text, str) or os.path.isabs(name) or ".." in name.split("/"):
            continue  # not written by Étude
        file = root / name
        try:
            now = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if now != text and "REDACTED" not in text:
            yield name, text


def _mirror(root: Path, made: Path, texts: Mapping[str, str], below: str = "") -> None:
    """Link every entry of ``root``; folders that hold a text are made, and the texts are written."""
    for entry in os.scandir(root / below):
        name = f"{below}/{entry.name}" if below else entry.name
        if name in texts:
            (made / name).write_text(texts[name], encoding="utf-8")
        elif any(text.startswith(f"{name}/") for text in texts):
            (made / name).mkdir()
            _mirror(root, made, texts, name)
        elif entry.name != "__pycache__":
            (made / name).symlink_to(entry.path)
