"""Finds checkpoints of other systems in their own folders.

.. code-block:: text

    files            epoch_3.pth  iter_500.pth  model_0000999.pth  best_<metric>_epoch_2.pth
    folders          with a file per part, as a guest's layout describes them
    torch            a folder with ``.metadata`` and ``*.distcp`` (torch.distributed.checkpoint)

Everything is read as data. What such a file holds is known from its content; its name says what it was kept for. What
only one system does is in the layouts that guests bring (:mod:`etude.checkpoint.formats.layouts`).
"""

from __future__ import annotations

import os
import re
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

from etude.checkpoint.formats import foreign, layouts, sharded
from etude.checkpoint.formats.safetensors import size_of
from etude.checkpoint.storage.places import Disk, LocalDisk, locate
from etude.errors import NoCheckpoint, ResumeError, printable
from etude.fast_dataclass import field, record

SUFFIXES = (".pth", ".pt", ".ckpt", ".bin", ".safetensors")
#: Records in the run's folder that have such an ending.
_NO_CHECKPOINT = re.compile(r"ledger(-rank\d+)?\.bin")
_BEST = re.compile(r"best_(?P<metric>.+)_(?:epoch|iter)_\d+\.pth|(?:model_)?best(?:\..*)?")
_PERIODIC = re.compile(r"(?P<word>\w+?)_(?P<number>\d+)(?:\.(?:pth|pt|ckpt|bin))?")
_LONGEST_POINTER = 4096
#: Where a checkpoint of no layout may have its number of steps.
_STEPS = (("", "step", 0),)
#: Part and key of the epoch, of Étude and of no layout.
_EPOCHS = (("counters", "epoch"), ("", "epoch"))


@record
class Found:
    """One checkpoint in a folder of another system; ``pointers`` are the names that point to it."""

    name: str
    path: str
    pointers: tuple[str, ...] = ()
    #: What retention looks at besides the step: such files do not say how good they are.
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return os.path.basename(self.name)

    @property
    def periodic(self) -> re.Match[str] | None:
        """The name taken apart when it is one of a row, saved every so often."""
        return None if _BEST.fullmatch(self.base) else _PERIODIC.fullmatch(self.base)

    @property
    def purpose(self) -> str:
        """Return why a checkpoint was kept, as its name tells: ``best by accuracy``, ``final``."""
        best = _BEST.fullmatch(self.base)
        if best:
            return f"best by {best['metric']}" if best["metric"] else "best"
        final = tuple(start for layout in layouts.known() for start in layout.final)
        return "final" if final and self.base.startswith(final) else ""

    @cached_property
    def about(self) -> dict[Any, Any]:
        """Its content without the tensors; an error where it cannot be read."""
        return read(self.path, skim=True)

    @cached_property
    def step(self) -> int:
        """By its content; by its name where that cannot be read or does not say."""
        try:
            counted = steps_in(self.about)
        except ResumeError:
            counted = 0
        if counted or self.periodic is None:
            return counted
        number, word = int(self.periodic["number"]), self.periodic["word"]
        return number + any(word in layout.from_zero for layout in layouts.known())

    @property
    def epoch(self) -> int | None:
        return epoch_in(self.about)

    @property
    def size(self) -> int:
        return sum(_size(path) for path in _files(self.path) if "://" in path or os.path.exists(path))

    @property
    def saved(self) -> str:
        """By the file's time: the systems themselves write local times, each in another format."""
        if "://" in self.path:
            return ""
        moment = max((os.path.getmtime(path) for path in _files(self.path) if os.path.exists(path)), default=None)
        return "" if moment is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def read(path: str, *, skim: bool = False, trust: bool = False) -> dict[Any, Any]:
    """Return the content of a file or folder of another system. ``skim`` leaves out the bytes of the tensors."""
    if not os.path.isdir(path):
        return foreign.skim(path) if skim else foreign.read(path, trust=trust)
    if sharded.is_sharded(path):
        return sharded.read(path, skim=skim)
    if not is_of_parts(path):
        raise NoCheckpoint(f"{printable(path)}: a folder, where a checkpoint is needed")
    for layout in layouts.known():
        if layout.is_folder(path) and (wrong := layout.refuse_folder(path)):
            raise ResumeError(f"{printable(path)}: {wrong}")
    return {os.path.basename(entry): read(entry, skim=skim, trust=trust) for entry in _files(path)}


def checkpoints(folder: str) -> list[Found]:
    """Return the checkpoints of other systems in ``folder``, by step; empty if it is not one of their folders."""
    place, where = locate(folder)
    names = place.names(where)
    pointed = {name: target for name in _pointers() if name in names and (target := _pointed_at(place, where, name))}
    found = []
    for name in names:
        path = place.join(where, name)
        if name.startswith(".") or _NO_CHECKPOINT.fullmatch(name) or pointed.get(name, name) in set(names) - {name}:
            continue
        if name.endswith(SUFFIXES) or (isinstance(place, LocalDisk) and is_of_parts(path)):
            leading = tuple(pointer for pointer, target in pointed.items() if target == name and pointer != name)
            found.append(Found(name, f"{folder.rstrip('/')}/{name}" if "://" in folder else path, leading))
    found += _of_runs(folder, names) if isinstance(place, LocalDisk) else ()
    return sorted(found, key=lambda one: (one.step, one.purpose != "", one.name))


def newest(folder: str) -> str | None:
    """Return what a resume would use: what is pointed to, else the one with the most steps."""
    found = checkpoints(folder)
    chosen = next((one for one in found if one.pointers), None) or next(
        (one for one in reversed(found) if not one.purpose.startswith("best")), found[-1] if found else None
    )
    return chosen.path if chosen else None


def steps_in(state: Mapping[Any, Any]) -> int:
    """Return how many steps were done when ``state`` was saved, in any system's words."""
    for layout in (*layouts.known(), None):
        for part, word, more in layout.steps if layout is not None else _STEPS:
            place = state.get(part) if part else state
            if isinstance(place, Mapping) and isinstance(place.get(word), int):
                counted = int(place[word]) + more
                return layout.correct(counted, state) if layout is not None and layout.correct else counted
    return 0


def epoch_in(state: Mapping[Any, Any]) -> int | None:
    """Return the epoch in which ``state`` was saved, in any system's words; None where nothing says so."""
    for part, word in epochs():
        place = state.get(part) if part else state
        if isinstance(place, Mapping) and type(place.get(word)) is int:
            return int(place[word])
    return None


def epochs() -> list[tuple[str, str]]:
    """Return where a checkpoint may have its epoch, as part and key."""
    return [_EPOCHS[0], *(place for layout in layouts.known() for place in layout.epochs), _EPOCHS[1]]


def _pointers() -> tuple[str, ...]:
    """Return the names of files that only lead to a checkpoint."""
    return tuple(dict.fromkeys(name for layout in layouts.known() for name in layout.pointers))


def one(path: str) -> Found | None:
    """Return the checkpoint at ``path`` if it is a file or folder of another system."""
    place, where = locate(path)
    if isinstance(place, LocalDisk):
        single = os.path.isfile(where) or is_of_parts(where)
    else:
        single = path.endswith(SUFFIXES)
    return Found(os.path.basename(path.rstrip("/")), path) if single else None


def fault(path: str) -> str:
    """Describe what is wrong with a file or folder; empty if nothing. Beside :func:`damage`, that its content can be
    read.
    """
    if sharded.is_sharded(path):
        return _trouble(path, lambda: sharded.read(path))
    return damage(path) or _trouble(path, lambda: read(path, skim=True))


def damage(path: str, need: Collection[str] = ()) -> str:
    """Describe what is missing or has changed; empty if nothing. Every byte is read, and compared with torch's
    checksums; what the bytes mean is not looked at. ``need`` names entries of a folder; ``a|b``: one of them."""
    if not os.path.isdir(path):
        return _trouble(path, lambda: _require_whole(path))
    for words in need:
        if not any(os.path.exists(os.path.join(path, name)) for name in words.split("|")):
            return f"it has no entry {words!r}"
    for entry in _files(path):
        if wrong := _trouble(entry, partial(_require_whole, entry)):
            return f"{os.path.basename(entry)}: {wrong}"
    return ""


def _require_whole(path: str) -> None:
    if not zipfile.is_zipfile(path):
        foreign.read(path)
        return
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged:
        raise ResumeError(f"the checksum of {printable(damaged)} differs")


def _trouble(path: str, look: Callable[[], Any]) -> str:
    """Return the error that ``look`` raises, without the path."""
    try:
        look()
    except ResumeError as error:
        return without(path, str(error))
    except Exception as error:  # whatever a damaged archive makes zipfile trip over
        return f"damaged ({printable(str(error) or type(error).__name__)[:120]})"
    return ""


def without(path: str, text: str) -> str:
    """Return a message without its path; names below that path stay."""
    return text.removeprefix(f"{printable(path)}: ").replace(f"{printable(path.rstrip('/'))}/", "", 1)


def has_checksums(path: str) -> bool:
    """Return whether a changed bit would be noticed: torch's zip files have a checksum per entry, the others have
    none.
    """
    return not sharded.is_sharded(path) and all(_begins(file, b"PK") for file in _files(path))


def _begins(path: str, start: bytes) -> bool:
    place, where = locate(path)
    with place.open_file(os.path.realpath(where) if isinstance(place, LocalDisk) else where) as file:
        return file.read(len(start)) == start


def _of_runs(folder: str, names: list[str]) -> Iterator[Found]:
    """Yield the checkpoints of all runs of a project, for layouts with a folder per run."""
    patterns = [layout.runs for layout in layouts.known() if layout.runs]
    for name in names:
        inner = os.path.join(folder, name)
        if any(re.fullmatch(pattern, name) for pattern in patterns) and os.path.isdir(inner):
            for file in sorted(os.listdir(inner)):
                if file.endswith(".ckpt") and not file.startswith("."):
                    yield Found(f"{name}/{file}", os.path.join(inner, file))


def _pointed_at(place: Disk, folder: str, pointer: str) -> str:
    """Return the file that ``pointer`` names in its own folder. It is never followed out of that folder."""
    path = place.join(folder, pointer)
    if isinstance(place, LocalDisk) and os.path.islink(path):
        return os.path.basename(os.readlink(path))
    if pointer.endswith(SUFFIXES):
        return pointer
    try:
        with place.open_file(path) as file:
            text = file.read(_LONGEST_POINTER).decode(errors="replace").strip()
    except OSError:
        return ""
    return os.path.basename(text)


def is_of_parts(path: str) -> bool:
    """Return whether it is a folder with a file per part, of a guest's layout or of torch.distributed.checkpoint."""
    if sharded.is_sharded(path):
        return True
    return os.path.isdir(path) and any(layout.is_folder(path) for layout in layouts.known())


def _files(path: str) -> list[str]:
    """Return the files of a checkpoint: itself, or those in its folder."""
    if not os.path.isdir(path):
        return [path]
    inside = (os.path.join(path, name) for name in sorted(os.listdir(path)) if not name.startswith("."))
    return [entry for entry in inside if os.path.isfile(entry)]


def _size(path: str) -> int:
    place, where = locate(path)
    if isinstance(place, LocalDisk):
        return os.path.getsize(where)
    with place.open_file(where) as file:
        return size_of(file)
