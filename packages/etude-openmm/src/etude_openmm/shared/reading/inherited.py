"""Moves findings about inherited keys to the child config that caused them.

A child that gives a dict another ``type`` inherits the arguments of the old one, unless it says ``_delete_=True``.
Nothing is wrong with the base then, although the argument that does not fit stands there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path, Tree, dotted
from etude.errors import Finding
from etude.errors.spelling import is_slip
from etude.fast_dataclass import replace
from etude.plan import Place
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.config.merge import DELETE
from etude_openmm.shared.reading.syntax import names_used

#: Keys that say what a dict becomes.
KINDS = ("type", "policy")
_MARKERS = (DELETE, "_base_")


def report_inherited(low: Lowering) -> None:
    """Move findings of ``low`` to the child that caused them, and report markers that are not written right."""
    misspelt = {path for path, key in _misspelt_markers(low.tree) if _tell_marker(low, path, key)}
    for path, value in low.tree.walk():
        if isinstance(value, Mapping):
            _blame_child(low, path, value, reported=path in misspelt)
            _tell_idle_delete(low, path, value)


def _misspelt_markers(tree: Tree) -> list[tuple[Path, str]]:
    found = [((), key) for key in tree.values if _marker_of(key) == "_base_" and _names_files(tree.values[key])]
    dicts = ((path, value) for path, value in tree.walk() if isinstance(value, Mapping))
    return found + [(path, key) for path, value in dicts for key in value if _marker_of(key) == "_delete_"]


def _marker_of(key: Any) -> str:
    """Return the marker that ``key`` misspells; empty when it is the marker itself, or none."""
    if not isinstance(key, str) or "_" not in (key[:1], key[-1:]) or key in _MARKERS:
        return ""
    return next((m for m in _MARKERS if key.strip("_") == m.strip("_") or is_slip(key, m)), "")


def _names_files(value: Any) -> bool:
    names = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    return bool(names) and all(
        isinstance(name, str) and name.endswith((".py", ".json", ".yaml", ".yml")) for name in names
    )


def _tell_marker(low: Lowering, path: Path, key: str) -> bool:
    at, marker = str(low.place(*path, key)), _marker_of(key)
    low.findings[:] = [f for f in low.findings if f.at != at or repr(key) not in f.message]
    # Constructors of optimizers pass over keys of paramwise_cfg that they do not know: such a run trains.
    severity = "warning" if path[-1:] == ("paramwise_cfg",) else "error"
    low.findings.append(Finding(at, f"unknown key {dotted((*path, key))}", f"did you mean {marker!r}?", severity))
    return True


def _tell_idle_delete(low: Lowering, path: Path, value: Mapping[Any, Any]) -> None:
    """Explain a ``_delete_`` where no base has the dict: it stays there, as an argument that nothing takes."""
    at = str(low.place(*path, DELETE))
    for number, finding in enumerate(low.findings):
        if DELETE in value and finding.at == at and repr(DELETE) in finding.message:
            message = f"`{DELETE}` has nothing to replace: the bases have no {dotted(path)}"
            low.findings[number] = replace(finding, message=message, hint="leave it out")


def _blame_child(low: Lowering, path: Path, value: Mapping[Any, Any], *, reported: bool) -> None:
    kind = next((word for word in KINDS if word in value), None)
    changed = _changed_by(low.tree, (*path, kind)) if kind else None
    if changed is None:
        return
    for key in value:
        place = low.tree.places.get((*path, key))
        if place is not None and _is_older(low.tree, place, changed):
            _move(low, (*path, key), changed, reported=reported)


def _move(low: Lowering, path: Path, to: Place, *, reported: bool) -> None:
    """Move the findings about an inherited key to the child; drop them where the child's mistake is reported."""
    at = str(low.tree.places[path])
    about = [f for f in low.findings if f.at == at and repr(path[-1]) in f.message]
    low.findings[:] = [f for f in low.findings if f not in about]
    for finding in about if not reported else ():
        drop = (
            f"`{dotted(path[:-1])}._delete_=True`"
            if to.file not in _shown(low.tree)
            else "`_delete_=True` in this dict"
        )
        message = f"{finding.message}, which is inherited from {at}"
        low.findings.append(replace(finding, at=str(to), message=message, hint=f"{drop} drops what it inherits"))


def _changed_by(tree: Tree, path: Path) -> Place | None:
    """Return where a value was changed that an older file had set."""
    entries = tree.history.get(path, [])
    return entries[-1][0] if len(entries) > 1 and entries[-1][1] != entries[-2][1] else None


def _is_older(tree: Tree, place: Place, than: Place) -> bool:
    return place.file != than.file and _age(tree, place) < _age(tree, than)


def _age(tree: Tree, place: Place) -> float:
    """Return the order of a place: bases come first, then the config itself, then the command line."""
    main, *bases = _shown(tree)
    return [*bases, main].index(place.file) if place.file in (main, *bases) else float("inf")


def _shown(tree: Tree) -> list[str]:
    """Return the files of a config, itself first, as places name them."""
    return [file.removeprefix(os.getcwd() + os.sep) for file in tree.files]


def report_late_changes(low: Lowering, read_by_runner: tuple[str, ...]) -> None:
    """Warn about top-level variables that a child sets, but that only a base, which has run before, reads."""
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
