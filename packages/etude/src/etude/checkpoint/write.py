"""Writes one checkpoint in an order that leaves it complete or absent, wherever it is interrupted."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from etude.checkpoint import manifest as manifests
from etude.checkpoint.manifest import Manifest, Stored
from etude.checkpoint.snapshot import File, Snapshot
from etude.checkpoint.storage import chaos
from etude.checkpoint.storage.disk import FileWriter, last_call
from etude.checkpoint.storage.owner import OwnerLost
from etude.checkpoint.storage.places import Disk
from etude.errors import SaveError, printable
from etude.fast_dataclass import record

#: What a checkpoint is called whose weights are not finite.
DIVERGED = "diverged"
_log = logging.getLogger("etude.checkpoint")


@record
class Entry:
    """A checkpoint of a store, as its manifest describes it."""

    name: str
    path: str
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.step

    @property
    def metrics(self) -> Mapping[str, float]:
        return self.manifest.metrics


@dataclass
class Outcome:
    """The outcome of a save; ``error`` is None if it is on disk."""

    step: int
    path: str = ""
    #: Of each file.
    sizes: tuple[int, ...] = ()
    #: Seconds that the background took.
    seconds: float = 0.0
    error: BaseException | None = None
    #: A weight that is not finite: saved apart, never to be resumed from.
    unsound: str | None = None


class RankBarrier:
    """The other ranks' share in a save; a single process has nobody to wait for."""

    def unsound(self) -> str | None:
        """Return a weight on another rank that is not finite."""
        return None

    def begin(self, name: str) -> None:
        """Let the other ranks write into the folder called ``name``; empty: there is none."""

    def end(self) -> tuple[dict[str, Stored], dict[str, tuple[str, ...]]]:
        """Wait for their files: name → what it holds, and part → the names of its files."""
        return {}, {}


@dataclass
class Job:
    """A save in progress: what to write, under which prefix (``step``, ``weights``, a tag), and the outcome."""

    snapshot: Snapshot
    manifest: Manifest
    prefix: str
    watch: Collection[str]
    outcome: Outcome
    #: Called before anything is written, by the thread that writes.
    first: Callable[[], None] | None = None
    may_begin: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    others: RankBarrier = field(default_factory=RankBarrier)
    #: Raises an error when the folder is another run's by now.
    guard: Callable[[], object] | None = None
    #: Whether no checkpoint of this step or a later one is there, so that its name is free.
    fresh: bool = False


def write_checkpoint(disk: Disk, folder: str, job: Job) -> Entry:
    """Write ``job`` below ``folder``; when anything fails, what was written is removed and nothing else touched."""
    if job.guard is not None:
        job.guard()
    if job.first is not None:
        job.first()
    job.outcome.sizes = tuple(file.size for file in job.snapshot.files)
    job.outcome.unsound = job.snapshot.unsound("model", job.watch) or job.others.unsound()
    if job.outcome.unsound is not None:  # before the name is chosen
        job.prefix = DIVERGED
    disk.make_folder(folder)
    wanted = f"{job.prefix}-{job.manifest.step:09}"
    name = wanted if job.fresh else free_name(disk, folder, wanted)
    target = disk.join(folder, name)
    # Where folders cannot be renamed, the manifest, written last, makes the checkpoint complete.
    working = f".{name}.tmp-{os.getpid()}" if disk.RENAMES else name
    place = disk.join(folder, working)
    with chaos.saving(target):
        try:
            disk.make_folder(place)
            # The other ranks write into it, and so it has to be there.
            job.others.begin(working)
            manifest = _write_manifest(disk, place, job, write_files(disk, place, job.snapshot.files))
            chaos.point("save.before_rename")
            if disk.RENAMES:
                disk.rename(place, target)
        except OwnerLost:  # what has this name may be the other run's
            raise
        except BaseException:  # room at once: the disk may be full
            quietly(disk.remove_tree, place)
            raise
        disk.sync_folder(folder)  # without it, a power loss may undo the rename
    job.outcome.path = target
    return Entry(name, target, manifest)


def write_files(disk: Disk, place: str, files: Sequence[File]) -> dict[str, Stored]:
    """Write all files. Checksums are computed from the same memory at the same time."""
    with ThreadPoolExecutor(2, thread_name_prefix="etude-hash") as pool:
        # sha256 releases the GIL, so that hashing and writing overlap. Hashes come from memory, not from the written
        # file: a bit that the disk flips while writing is noticed when the checkpoint is read.
        sums = [pool.submit(_checksum, file) for file in files]
        if disk.RENAMES:
            _write_together(disk, place, files)
        else:
            for file in files:
                disk.put(disk.join(place, file.name), file.pieces)
    return {file.name: Stored(file.size, digest.result()) for file, digest in zip(files, sums, strict=True)}


def _write_manifest(disk: Disk, place: str, job: Job, stored: dict[str, Stored]) -> Manifest:
    """Write the manifest last, when the files of all ranks are on disk."""
    theirs, shards = job.others.end()
    manifest = replace(job.manifest, files=stored | theirs, shards=shards)
    chaos.point("save.before_manifest")
    if not disk.RENAMES:
        _require_all(disk, place, manifest, job)
    disk.put(disk.join(place, manifests.NAME), [manifest.to_json()])
    disk.sync_folder(place)
    return manifest


def _require_all(disk: Disk, place: str, manifest: Manifest, job: Job) -> None:
    """Raise an error if the place is another run's by now, or files of the save are gone: it was emptied meanwhile."""
    if job.guard is not None:
        job.guard()
    gone = sorted(manifest.files.keys() - set(disk.names(place)))
    if gone:
        raise OSError(errno.ENOENT, "deleted while the others were written", disk.join(place, gone[0]))


def _write_together(disk: Disk, place: str, files: Iterable[File]) -> None:
    """Write all files and sync them afterwards, so that the disk can work on all of them at once."""
    writers: list[FileWriter] = []
    try:
        for file in files:
            writers.append(disk.create(disk.join(place, file.name)))
            for piece in file.pieces:
                writers[-1].write(piece)
        for writer in writers:
            writer.sync()
    finally:
        for writer in writers:
            writer.close()


def _checksum(file: File) -> str:
    digest = hashlib.sha256()
    for piece in file.pieces:
        digest.update(piece)
    return digest.hexdigest()


def free_name(disk: Disk, folder: str, wanted: str) -> str:
    """Return ``wanted``, with a number after it if that is taken; the highest is the newest."""
    suffixes = [name[len(wanted) :] for name in disk.names(folder) if name.startswith(wanted)]
    numbers = [int(suffix[1:] or 0) for suffix in suffixes if re.fullmatch(r"(\.\d+)?", suffix)]
    return f"{wanted}.{max(numbers) + 1}" if numbers else wanted


def wait_for(done: threading.Event, what: str, *, patience: float, say: Callable[[str], Any]) -> None:
    """Return when a save is done; say so when that takes long, and give up after ``patience`` seconds."""
    begun = time.monotonic()
    while not done.wait(min(10.0, patience)):
        waited = time.monotonic() - begun
        where = f"{what} has been waited for {waited:.0f} s, at {last_call()}"
        if waited >= patience:
            raise SaveError(f"{where}; giving up")
        say(where)


def quietly(call: Callable[[str], Any], path: str) -> None:
    """Clean up without hiding the error that made it necessary."""
    try:
        call(path)
    except OSError as error:
        _log.warning("%s could not be removed: %s", printable(path), error)
