"""Variables that are set too late: a base has read them already when the file that sets them runs.

``data_root = "mine"`` in a child changes nothing when only its base wrote ``dataset=dict(data_root=data_root)``: the
base was run first, with its own value. It is the trap of this config language.
"""

from __future__ import annotations

import os

from etude.dialects.openmm.checks.lowering import Lowering, names_used


def report_late_changes(low: Lowering, read_by_runner: tuple[str, ...]) -> None:
    """Warn of every top-level variable that a child sets anew, and that only a base used."""
    texts = {os.path.abspath(file): text for file, text in low.tree.files.items()}
    used = {file: names_used([text]) for file, text in texts.items()}
    for path, notes in low.tree.history.items():
        if len(path) != 1 or len(notes) < 2 or path[0] in read_by_runner:
            continue
        key, (place, _) = str(path[0]), notes[-1]
        setter = os.path.abspath(place.file)
        before = [os.path.abspath(note.file) for note, _ in notes[:-1]]
        readers = [file for file in used if key in used[file]]
        if place.line and setter not in before and readers and set(readers) <= set(before):
            text = f"{key} is set here, but only {os.path.basename(readers[0])} reads it, which was run before"
            low.warning(low.place(key), text, "set the keys that were made of it")
