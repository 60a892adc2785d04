"""Implements ``etude ckpt ls``, ``verify`` and ``prune``, for checkpoints of Étude and of other systems."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from etude.checkpoint import load as reading
from etude.checkpoint.find import FOLDER, find, is_native, kept_elsewhere
from etude.checkpoint.formats import folders
from etude.checkpoint.formats.folders import Found
from etude.checkpoint.retention import Retention
from etude.checkpoint.storage import disk
from etude.checkpoint.storage.places import LocalDisk, local_path, locate
from etude.checkpoint.store import Store
from etude.errors import ResumeError, UserError, printable
from etude.errors.spelling import suggest
from etude.fast_dataclass import record
from etude.units import human

#: The folder of notes about mmcv checkpoints, next to them.
_NOTES = ".etude"


def store_folder(path: str) -> str:
    """Return the folder with the checkpoints: ``path`` itself, or the one inside a run's folder."""
    path = local_path(path)
    place, where = locate(path)
    if isinstance(place, LocalDisk) and not os.path.isdir(where):
        wrong = "is not a folder" if os.path.exists(where) else "no such file or checkpoint"
        raise UserError(f"{printable(path)}: {wrong}")
    inner = place.join(path, FOLDER)
    return inner if place.names(locate(inner)[1]) else path


def native_names(folder: str) -> list[str]:
    """Return Étude's checkpoints in ``folder``: whatever has a manifest, or the name of one."""
    place, where = locate(folder)
    return [name for name in place.names(where) if not name.startswith(".") and is_native(place.join(folder, name))]


def rows(path: str) -> list[tuple[str, ...]]:
    """Return one line per checkpoint for ``ls``: name, step, epoch, size, time, metrics or what is wrong."""
    natives, others = listed(path)
    return [_row(one) for one in natives] or [_foreign_row(one) for one in others]


def listed(path: str) -> tuple[list[str], list[Found]]:
    """Return the paths of Étude's checkpoints at ``path``, or those of other systems; ``path`` may be one itself."""
    path = local_path(path).rstrip("/") or path
    if os.path.basename(path) == "latest" and os.path.isfile(path):
        path = find(path)
    if is_native(path):
        return [path], []
    single = folders.one(path)
    if single is not None:
        return [], [single]
    folder = store_folder(path)
    place = locate(folder)[0]
    natives = [place.join(folder, name) for name in native_names(folder)]
    others = [] if natives else folders.checkpoints(folder)
    if not natives and not others:
        raise _none_in(path)
    return natives, others


def _none_in(path: str) -> UserError:
    """Report that nothing is there; for a folder of runs, name the newest."""
    levels = () if "://" in path else (f"*/{FOLDER}", f"*/*/{FOLDER}")
    runs = [found for level in levels for found in Path(path).glob(level)]
    newest = max(runs, key=lambda one: one.parent.name, default=None)
    hint = f"; it holds runs, the newest is {printable(str(newest.parent))}" if newest else ""
    if elsewhere := kept_elsewhere(path):
        hint = f"; its plan keeps them in {printable(elsewhere)}"
    return UserError(f"no checkpoint in {printable(path)}, of Étude or of a system that it knows{hint}")


def _row(path: str) -> tuple[str, ...]:
    place, where = locate(path)
    name = os.path.basename(where)
    try:
        manifest = reading.read_manifest(place, where, trust_owner=True)
    except ResumeError as error:
        return (name, "", "", "", "", str(error))
    metrics = "  ".join(f"{key} {value:.4g}" for key, value in manifest.metrics.items())
    metrics += "  (best)" if name == _best_in(os.path.dirname(where)) else ""
    note = manifest.kind if manifest.kind != "full" else ""
    return (name, str(manifest.step), str(manifest.epoch), human(manifest.size), manifest.saved, metrics or note)


def _best_in(folder: str) -> str:
    """Return the checkpoint that the pointer ``best`` of a local folder names."""
    try:
        with open(os.path.join(folder, "best"), encoding="utf-8") as file:
            return file.read(200).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _foreign_row(one: Found) -> tuple[str, ...]:
    notes = [note for note in (one.purpose, *one.pointers) if note]
    try:
        epoch = "" if one.epoch is None else str(one.epoch)
    except ResumeError as error:
        return (one.name, "", "", human(one.size), one.saved, folders.without(one.path, str(error)))
    return (one.name, str(one.step or ""), epoch, human(one.size), one.saved, ", ".join(notes))


# -- verify ------------------------------------------------------------------------------------------------------------


@record
class Checked:
    """One checkpoint that was read completely: what is wrong with it, and what could not be checked."""

    name: str
    wrong: str = ""
    note: str = ""


def check(path: str, *, trust_owner: bool = False) -> list[Checked]:
    """Verify one checkpoint, or all of a folder."""
    natives, others = listed(path)
    return [_check_native(one, trust_owner) for one in natives] or [_check_foreign(one) for one in others]


def _check_native(path: str, trust_owner: bool) -> Checked:
    place, where = locate(path)
    name = os.path.basename(where)
    try:
        reading.verify(place, where, trust_owner=trust_owner)
    except ResumeError as error:
        return Checked(name, str(error))
    return Checked(name)


def _check_foreign(one: Found) -> Checked:
    wrong = folders.fault(one.path)
    if not wrong and not folders.has_checksums(one.path):
        return Checked(one.name, note="can be read; it has no checksums, so a changed bit would not show")
    return Checked(one.name, wrong)


# -- prune -------------------------------------------------------------------------------------------------------------


@dataclass
class Pruned:
    """The names that were (or would be) deleted, and what stays for a reason."""

    gone: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def prune(folder: str, rule: Retention, *, aside: bool = False, dry: bool = False) -> Pruned:
    """Delete what ``rule`` does not keep. What is damaged neither counts as kept nor goes: it is reported."""
    if is_native(folder) or folders.one(folder):
        raise UserError(f"{printable(folder)} is one checkpoint; pass its folder to prune")
    store = Store(folder, retention=rule, write=False)
    entries = store.entries()
    if not entries and not native_names(folder):
        return _prune_foreign(folder, rule, dry=dry)
    known = {name for entry in entries for name in entry.metrics}
    if rule.metric and known and rule.metric not in known:
        raise UserError(f"no checkpoint has the metric {rule.metric!r}; {suggest(rule.metric, known)}")
    done = Pruned()
    whole = []
    for entry in entries:
        wrong = _check_native(store.disk.join(folder, entry.name), True).wrong
        done.left += [f"{entry.name}: {wrong}"] if wrong else []
        whole += [] if wrong else [entry]
    kept = {entry.name for entry in rule.keep({entry.step: entry for entry in whole}.values())}
    done.gone = [entry.name for entry in whole if entry.name not in kept]
    if aside:
        done.gone += [name for name in store.disk.names(store.folder) if name.startswith(("aside-", "broken-"))]
    for name in () if dry else done.gone:
        store.discard(name)
    return done


def _prune_foreign(folder: str, rule: Retention, *, dry: bool) -> Pruned:
    """Prune the periodic checkpoints; the best, the final and the pointed-to ones stay."""
    found = folders.checkpoints(folder)
    if not found:
        raise _none_in(folder)
    if "://" in folder:
        raise UserError("checkpoints of other systems are pruned on the local disk alone")
    if rule.metric:
        raise UserError(
            "these checkpoints do not record a metric: the best ones have their own names "
            "(best_…, model_best) and always stay; leave out --best"
        )
    done = Pruned()
    row = []
    for one in found:
        if one.periodic is None or os.path.islink(one.path):
            continue
        wrong = folders.fault(one.path)
        done.left += [f"{one.name}: {wrong}"] if wrong else []
        row += [] if wrong else [one]
    kept = {one.name for one in rule.keep(row)} | {one.name for one in row if one.pointers}
    going = [one for one in row if one.name not in kept]
    done.gone = [one.name for one in going]
    for one in () if dry else going:
        _forget(one)
    return done


def _forget(one: Found) -> None:
    """Delete a checkpoint of another system; a folder loses its name first, so that it is never half there."""
    if os.path.isdir(one.path):  # a file is gone in one call
        above, name = os.path.split(one.path)
        rest = os.path.join(above, f".{name}.old-{os.getpid()}")
        disk.rename(one.path, rest)
        disk.remove_tree(rest)
        return
    disk.remove(one.path)
    notes = os.path.join(os.path.dirname(one.path), _NOTES)
    for name in disk.names(notes):
        if name.startswith((f"{one.base}.note", f"{one.base}.rank")):
            disk.remove(os.path.join(notes, name))


def newest_run(root: str = "runs") -> str:
    """Return the run folder that was written last, for commands without a path."""
    found = sorted(Path(root).glob(f"*/*/{FOLDER}"), key=lambda path: path.parent.name)
    if not found:
        raise UserError(f"no run with checkpoints below {root}/; give a path")
    return str(found[-1].parent)
