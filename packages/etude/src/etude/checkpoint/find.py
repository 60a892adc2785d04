"""Finds the checkpoint that a user means: a path to one, to ``latest``, to a run, or a bare name inside a run."""

from __future__ import annotations

import os

import yaml

from etude.checkpoint import manifest as manifests
from etude.checkpoint.formats import folders
from etude.checkpoint.retention import Retention
from etude.checkpoint.storage.places import local_path, locate
from etude.checkpoint.store import STEP, Store
from etude.errors import NoCheckpoint, ResumeError, printable
from etude.errors.spelling import nearest, suggest
from etude.metrics.direction import lower_is_better

FOLDER = "checkpoints"
#: Where runs are by default.
_RUNS = "runs"
_SHOWN = 6


def find(path: str, *, within: str = "") -> str:
    """Return the checkpoint or file at ``path``; for a run or a folder of checkpoints, the newest one.

    ``within`` is a folder of checkpoints in which a name that leads nowhere else is looked for.
    """
    path = local_path(path)
    text = path.rstrip("/") or path
    if "://" in path:
        return text if text.endswith(folders.SUFFIXES) else _newest(text)
    if within and not os.path.exists(text):
        place, where = locate(within)
        if text in place.names(where):
            text = place.join(within, text)
            if "://" in text:
                return text
    if os.path.basename(text) in ("latest", "best") and os.path.isfile(text):
        return _pointed_at(text)
    if os.path.isdir(text):
        return _newest(text)
    if not os.path.exists(text):
        raise NoCheckpoint(f"{printable(path)}: no such file or checkpoint{_what_there_is(text, within)}")
    return text


def named_run(path: str) -> str:
    """Return the folder of a run that is called by its name: ``digits/20261116-101500`` or ``digits``, the newest of
    these, below ``runs``. A path that leads somewhere, and one that leads nowhere, are returned as they are."""
    if "://" in path:
        return path
    top = next((one for one in (path, os.path.join(_RUNS, path)) if os.path.exists(one)), path)
    inside = sorted(os.listdir(top)) if os.path.isdir(top) else []
    saved = [os.path.join(top, one) for one in inside if os.path.isdir(os.path.join(top, one, FOLDER))]
    return saved[-1] if saved and FOLDER not in inside else top


def find_best(run: str, metric: str = "") -> str:
    """Return the best checkpoint of a run: by its pointer ``best``, or by a given metric."""
    folder = next((p for p in (os.path.join(run, FOLDER), run) if Store(p, write=False).entries()), "")
    if not folder:
        return _best_of_another_system(run, metric)
    pointer = os.path.join(folder, "best")
    if not metric and os.path.isfile(pointer):
        return _pointed_at(pointer)
    entries = Store(folder, write=False).entries()
    known = sorted({name for entry in entries for name in entry.metrics})
    if not metric:
        hint = f"name a metric ({', '.join(known)}), or write checkpoint: {{best: …}}" if known else "it has no metrics"
        raise NoCheckpoint(f"{printable(run)} does not say which checkpoint is best; {hint}")
    mode = "min" if lower_is_better(metric) else "max"
    ranked = Retention(metric=metric, mode=mode).ranked(entries)
    if not ranked:
        raise NoCheckpoint(f"no checkpoint of {printable(run)} has a metric {metric!r}; {suggest(metric, known)}")
    return os.path.join(folder, ranked[0].name)


def _best_of_another_system(run: str, metric: str) -> str:
    """Return what the other system called its best: ``best_accuracy_epoch_2.pth``, ``model_best``."""
    found = folders.checkpoints(run) if os.path.isdir(run) else []
    if not found:
        raise NoCheckpoint(f"{printable(run)}: no such run, or it has no checkpoint")
    wanted = f"best by {metric}" if metric else "best"
    best = [one for one in found if one.purpose == wanted or (not metric and one.purpose.startswith("best by "))]
    if len(best) == 1:
        return best[0].path
    kept = ", ".join(one.name for one in found if one.purpose.startswith("best")) or "none"
    raise NoCheckpoint(f"{printable(run)}: no single checkpoint is the {wanted}; kept as best: {kept}")


def is_native(path: str) -> bool:
    """Return whether ``path`` is one checkpoint of Étude: it has a manifest, or a name that only such a one has."""
    disk, where = locate(path)
    names = disk.names(where)
    called_so = STEP.fullmatch(os.path.basename(where.rstrip("/"))) is not None
    return manifests.NAME in names or (called_so and (bool(names) or os.path.isdir(where)))


def _pointed_at(path: str) -> str:
    """Return the checkpoint that ``latest`` names, if it lies in the same folder."""
    with open(path, "rb") as file:
        name = file.read(200).decode(errors="replace").strip()
    target = os.path.join(os.path.dirname(path), name)
    # The content of a pointer is not trusted: a name like `../x` would lead out of the folder.
    if STEP.fullmatch(name) is None or not os.path.isdir(target):
        raise ResumeError(f"{printable(path)} names {printable(name)!r}, and there is no such checkpoint in its folder")
    return target


def _newest(folder: str) -> str:
    """Return a checkpoint as it is and the newest one of a folder; callers report a folder that has none."""
    disk, where = locate(folder)
    if is_native(folder):
        return folder
    for place in (disk.join(folder, FOLDER), folder):
        entries = Store(place, write=False).entries()
        if entries:
            return disk.join(place, entries[-1].name)
    bare = [name for name in disk.names(where) if name.startswith("weights-")]
    found = folders.newest(folder) or (disk.join(folder, bare[-1]) if bare else "")
    if not found and (elsewhere := kept_elsewhere(folder)):
        raise NoCheckpoint(f"{printable(folder)} keeps its checkpoints in {printable(elsewhere)}")
    return found or folder


def kept_elsewhere(folder: str) -> str:
    """Return where a run's plan puts its checkpoints, when not into its own folder. The place is reported, not
    opened.
    """
    try:
        with open(os.path.join(folder, "plan.yaml"), encoding="utf-8") as file:
            section = yaml.safe_load(file)["checkpoint"]
        return str(section.get("folder") or "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return ""


def _what_there_is(path: str, within: str) -> str:
    above = os.path.dirname(path) or "."
    for place in (above, within):
        names = [name for name in _names(place) if STEP.fullmatch(name)] if place else []
        if names:
            near = nearest(os.path.basename(path), names)
            listed = ", ".join(names[-_SHOWN:])
            return f"; {printable(place)} has {listed}" + (f"; did you mean {near}?" if near else "")
    if within:
        return "; --resume without a path takes the newest checkpoint of the run"
    return "" if os.path.isdir(above) else f", nor a folder {printable(above)}"


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
