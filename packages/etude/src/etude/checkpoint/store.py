"""Saves, finds and prunes the checkpoints of one run: complete and verified, or absent.

.. code-block:: text

    save:    snapshot (the caller waits for one copy of memory)
             then, in the background:  .step-N.tmp-PID/  files, fsync · manifest.json, fsync · fsync of the folder
             rename to step-N · fsync of the parent · latest · prune (rename to .trash-…, then delete)
    resume:  newest to oldest by the step in the manifest; the first whose every byte is as written

Once the first checkpoint is complete, there is a complete one at every moment. Names that begin with a dot are
unfinished or deleted checkpoints: they are never read, and removed when a store is opened for writing.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from etude.checkpoint import load as reading
from etude.checkpoint import manifest as manifests
from etude.checkpoint.load import Loaded
from etude.checkpoint.manifest import Damaged, Manifest, Withheld
from etude.checkpoint.retention import Retention
from etude.checkpoint.snapshot import Arena, padded
from etude.checkpoint.storage import chaos, space
from etude.checkpoint.storage.owner import Claim, OwnerLost
from etude.checkpoint.storage.places import locate
from etude.checkpoint.storage.remote import RemoteError
from etude.checkpoint.write import Entry, Job, Outcome, free_name, quietly, wait_for, write_checkpoint
from etude.dist.layout.shards import piece_of, tensors_in
from etude.errors import PeerError, ResumeError, SaveError, printable

#: The name of a checkpoint that a run may resume from.
STEP = re.compile(r"step-(\d+)(?:\.(\d+))?")
_log = logging.getLogger("etude.checkpoint")


class Store:
    """The checkpoints in ``folder``: a local path, or a URL that fsspec knows.

    One save is in flight at most; a second waits for it. A save that fails leaves no files and is reported by
    :meth:`poll`, which raises after ``failures`` of them in a row. ``say`` gets the lines that a user should read.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        retention: Retention | None = None,
        write: bool = True,
        failures: int = 3,
        patience: float = 600.0,
        trust_owner: bool = False,
        say: Callable[[str], Any] = _log.warning,
    ) -> None:
        self.disk, self.folder = locate(folder)
        #: The folder as a user would write it.
        self.given = self.folder if self.disk.RENAMES else os.fspath(folder)
        self.retention = retention or Retention()
        self.failures, self.patience, self.trust_owner, self.say = failures, patience, trust_owner, say
        #: Seconds that a save in shards waits for the pieces of other ranks.
        self.patience_for_ranks = patience / 2
        self._arena = Arena()
        self._preparing: threading.Thread | None = None
        self._job: Job | None = None
        self._held: Job | None = None
        #: Saves that have ended since the last :meth:`poll`.
        self.news: deque[Outcome] = deque()
        #: Whether this store has looked for checkpoints to delete: from then on it knows of each.
        self._pruned = False
        self._failed_in_a_row = 0
        self._entries: dict[str, Entry] = {}
        self._best = ""
        self._newest: str | None = None
        self._write = write
        #: Names of checkpoints that verify, but that a part of the run could not load.
        self.passed: set[str] = set()
        #: Whether a save deletes what it makes superfluous; not after an error, when everything may be needed.
        self.pruning = True
        #: Whose the folder is, on an object store that several machines reach; raises when it is another run's by now.
        self.owner: Claim | None = None
        #: The highest step in the name of a checkpoint so far: what comes after it needs no look into the folder.
        self._highest = 0
        if write:
            self.sweep()

    # -- saving --------------------------------------------------------------------------------------------------

    def save(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        epoch: int = 0,
        tag: str = "",
        metrics: Mapping[str, float] | None = None,
        weights_only: bool = False,
        watch: Collection[str] = (),
        world: int = 1,
        hold: bool = False,
        first: Callable[[], None] | None = None,
    ) -> None:
        """Copy ``state`` (part → tree of plain values and tensors) and write it in the background.

        A ``tag`` makes a checkpoint apart (``tag-N``), which is neither resumed from nor pruned; so is one with
        ``weights_only``. ``watch`` names weights of the part ``model``: if one is not finite, the checkpoint becomes
        ``diverged-N``. With ``hold`` it is only copied, and written if :meth:`commit` is called before the next save.
        ``first`` is called in the background before anything is written.
        """
        self.wait()
        # Both would allocate the memory of the arena.
        if self._preparing is not None:
            self._preparing.join()
        snapshot = self._arena.take({"model": state["model"]} if weights_only else state)
        kind = "weights" if weights_only else "full"
        manifest = Manifest(
            step=step, epoch=epoch, kind=kind, tag=tag, metrics=dict(metrics or {}), world=world,
            parts=snapshot.parts,
        )  # fmt: skip
        prefix = tag or ("weights" if weights_only else "step")
        guard = self._check_owner if self.owner is not None else None
        self._held = Job(
            snapshot, manifest, prefix, watch, Outcome(step), first, guard=guard, fresh=step > self._highest
        )
        self._highest = max(self._highest, step)
        if not hold:
            self.commit()

    def commit(self) -> None:
        """Write what was copied and held back, if there is such a thing."""
        if self._held is not None:
            self._job, self._held = self._held, None
            # No daemon: Python waits for it at its end, so that a save under way is not cut off.
            threading.Thread(target=self._work, args=(self._job,), name="etude-save").start()
            self._job.may_begin.set()

    def is_free(self, within: float = 0.0) -> bool:
        """Return whether no save is in flight, so that another need not wait for it; asks for ``within`` seconds at
        most.
        """
        return self._job is None or self._job.done.wait(within)

    def prepare(self, state: Mapping[str, Any]) -> None:
        """Get memory for snapshots of states like this one ready in the background, before the first save."""
        local = [piece.local if (piece := piece_of(tensor)) else tensor for tensor in tensors_in(state)]
        size = sum(padded(tensor.nbytes) for tensor in local)
        self._preparing = threading.Thread(target=self._arena.prepare, args=(size,), name="etude-prepare")
        self._preparing.start()

    def poll(self) -> list[Outcome]:
        """Return the outcome of saves since the last call."""
        news: list[Outcome] = []
        while self.news:
            news.append(self.news.popleft())
            self._report(news[-1])
        return news

    def wait(self) -> None:
        """Return when no save is in flight; says so when that takes long, and gives up after ``patience`` seconds."""
        if self._job is not None:
            what = f"the save of step {self._job.outcome.step}"
            wait_for(self._job.done, what, patience=self.patience, say=self.say)
            self._job = None

    def close(self) -> None:
        """Wait for the last save and report it."""
        self.wait()
        self.poll()

    def _report(self, outcome: Outcome) -> None:
        if outcome.error is None:
            self._failed_in_a_row = 0
            return
        if isinstance(outcome.error, PeerError | OwnerLost):
            raise outcome.error
        self._failed_in_a_row += 1
        message = self._explain(outcome)
        if self._failed_in_a_row >= self.failures:
            raise SaveError(f"{message}; {self._failed_in_a_row} saves in a row have failed") from outcome.error
        self.say(f"{message}; training continues")

    def _explain(self, outcome: Outcome) -> str:
        error = outcome.error
        good = f"last good: {self._last_good()}"
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            room = space.explain(self.folder, outcome.sizes, local=self.disk.RENAMES)
            return f"step {outcome.step} was not saved: no space: {room}; {good}"
        return f"step {outcome.step} was not saved: {self._reason(error)}; {good}"

    def _reason(self, error: BaseException | None) -> str:
        """Return an error with the name that the system has for it, and the path."""
        if not isinstance(error, OSError):
            return printable(str(error) or type(error).__name__)
        code = errno.errorcode.get(error.errno or 0, "EIO")
        if isinstance(error, RemoteError):
            return f"{code} {error}"
        at = printable(os.fspath(error.filename)) if isinstance(error.filename, str) else printable(self.given)
        return f"{code} {at}: {printable(error.strerror or str(error) or type(error).__name__)}"

    def _last_good(self) -> str:
        try:
            newest = self.newest()
            return self.disk.url(newest) if newest else "none yet"
        except OSError:  # the folder that could not be written cannot be read, either
            return "not known"

    def _work(self, job: Job) -> None:
        """Write in the background, clean up, and leave the outcome for :meth:`poll`."""
        # `Thread.start` returns to training only when this thread lets go of the interpreter, which it would otherwise
        # do after 5 ms of work.
        job.may_begin.wait()
        started = time.perf_counter()
        try:
            self._notice_loss()
            entry = write_checkpoint(self.disk, self.folder, job)
            self._finish(entry, job)
        except BaseException as error:  # `done` must be set in any case: training waits for it
            job.outcome.error = error
        job.outcome.seconds = time.perf_counter() - started
        # Before `done`: whoever has waited finds the outcome.
        self.news.append(job.outcome)
        job.done.set()

    def _notice_loss(self) -> None:
        """Say so if the newest checkpoint is gone: someone has emptied the folder. What is saved now is whole."""
        if lost := self._lost():
            self.say(f"{lost}; older ones may be gone, too. A new one is saved")
            self._forget()

    def _check_owner(self) -> None:
        """Raise an error if the folder is another run's by now; say so if somebody has emptied it."""
        if self.owner is not None and not self.owner.check():
            self.say(f"{printable(self.given)} was emptied while the run trained: older checkpoints are gone")
            self._forget()

    def _forget(self) -> None:
        self._entries.clear()
        self._newest, self._best, self._pruned = None, "", False

    def require_newest(self) -> None:
        """Raise an error if the newest checkpoint is gone at the end of a run: there may be nothing left of it."""
        if lost := self._lost():
            raise SaveError(lost)

    def _lost(self) -> str:
        """Return what was deleted that this store has saved or loaded, empty if nothing was."""
        if self._newest is None or self.disk.exists(self.disk.join(self._newest, manifests.NAME)):
            return ""
        return f"{printable(self.given)}: {os.path.basename(self._newest)} was deleted while the run trained"

    def _finish(self, entry: Entry, job: Job) -> None:
        """Finish a save. The checkpoint is safe; what follows may fail without affecting it."""
        if job.prefix != "step":
            return
        self._entries[entry.name] = entry
        self._newest = entry.path
        latest = self.disk.join(self.folder, "latest")
        text = f"{entry.name}\n".encode()
        try:
            # Only now: what is deleted or pointed at follows a checkpoint that is durable.
            self.disk.write_atomically(latest, lambda file: file.write(text))
            if self.pruning and self._must_prune(entry):
                self.prune()
            self._point_at_best()
        except OSError as error:
            self.say(f"{entry.name} is saved, but tidying up failed: {printable(str(error))}")

    def _must_prune(self, entry: Entry) -> bool:
        """Return whether the new ``entry`` replaces another one. Listing a thousand that all stay would cost more than
        the save."""
        again = entry.name != f"step-{entry.step:09}"
        return again or not self._pruned or not self.retention.keeps_all(len(self._entries))

    def _point_at_best(self) -> None:
        """Write the name of the best checkpoint into the file ``best``, if the config names a metric."""
        if not self.retention.metric:
            return
        ranked = self.retention.ranked(self.entries())
        if ranked and ranked[0].name != self._best:
            self._best, text = ranked[0].name, f"{ranked[0].name}\n".encode()
            self.disk.write_atomically(self.disk.join(self.folder, "best"), lambda file: file.write(text))

    # -- keeping -------------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Remove what dead saves and half-done deletions left."""
        for name in self.disk.names(self.folder):
            if not name.startswith("."):
                self._highest = max([self._highest, *map(int, re.findall(r"-(\d+)", name))])
            unfinished = (name.startswith(".") and ".tmp-" in name) or (
                not self.disk.RENAMES and STEP.fullmatch(name) is not None and not self._complete(name)
            )
            # What is left of a pointer goes without a word: it is no checkpoint.
            if unfinished and not name.startswith((".latest", ".best")):
                self.say(f"removed unfinished checkpoint {printable(name)}")
            if unfinished or name.startswith(".trash-"):
                quietly(self.disk.remove_tree, self.disk.join(self.folder, name))

    def _complete(self, name: str) -> bool:
        return manifests.NAME in self.disk.names(self.disk.join(self.folder, name))

    def entries(self) -> list[Entry]:
        """Return the checkpoints with a readable manifest, oldest first; their files are not read."""
        return [entry for entry, _ in self._candidates() if entry is not None]

    def prune(self) -> list[str]:
        """Delete what retention does not keep; returns the names. The newest checkpoint is never deleted."""
        self._pruned = True
        entries = self.entries()
        latest = {entry.step: entry for entry in entries}  # of several of one step, the one that was saved last
        kept = {entry.name for entry in self.retention.keep(latest.values())}
        if entries:
            kept.add(entries[-1].name)
        gone = [entry.name for entry in entries if entry.name not in kept]
        for name in gone:
            self.discard(name)
        return gone

    def discard(self, name: str) -> None:
        """Delete a checkpoint. It is renamed first: one that is half deleted has no name any more."""
        trash = self.disk.join(self.folder, f".trash-{name}-{os.getpid()}-{time.time_ns()}")
        if self.disk.RENAMES:
            self.disk.rename(self.disk.join(self.folder, name), trash)
            self._entries.pop(name, None)
            chaos.point("prune.before_delete")
            self.disk.remove_tree(trash)
            return
        self._entries.pop(name, None)
        # The manifest first: without it the rest is no checkpoint, wherever the deletion ends.
        self.disk.remove(self.disk.join(self.disk.join(self.folder, name), manifests.NAME))
        self.disk.remove_tree(self.disk.join(self.folder, name))

    def newest(self) -> str | None:
        """Return the path of the newest complete checkpoint."""
        if self._newest is None:
            entries = self.entries()
            self._newest = entries[-1].path if entries else None
        return self._newest

    def set_aside(self, names: Iterable[str], word: str) -> None:
        """Rename checkpoints to ``word-…``, so that they are not candidates any more but can be looked at."""
        for name in names:
            target = free_name(self.disk, self.folder, f"{word}-{name.removeprefix('step-')}")
            self.disk.rename(self.disk.join(self.folder, name), self.disk.join(self.folder, target))
            self._entries.pop(name, None)
            self._newest = None
            self.say(f"renamed {name} to {target}")

    # -- reading -------------------------------------------------------------------------------------------------

    def resume(self, *, need: Collection[str] = ()) -> Loaded | None:
        """Return the newest checkpoint that verifies and has the parts in ``need``; None if there is no checkpoint at
        all.

        Each one that is skipped is reported with the reason. If there are candidates but none is usable, that is an
        error: training never silently starts again at step 0. A checkpoint of another user or of a newer version is an
        error, too: it is neither skipped nor pruned unless the user says so.
        """
        damaged: list[str] = []
        reasons: list[str] = []
        for _, name in reversed(self._candidates()):
            if name in self.passed:
                continue
            try:
                loaded = self.load(name, need=need)
            except ResumeError as error:
                if isinstance(error.__cause__, Withheld):
                    raise ResumeError(f"{error}; --resume PATH resumes from an older one") from error
                reasons.append(str(error))
                self.say(f"skipped {error}")
                if isinstance(error.__cause__, Damaged):
                    damaged.append(name)
                continue
            if self._write:
                self.set_aside(damaged, "broken")
            return loaded
        if reasons:
            listed = "\n  ".join(reasons)
            raise ResumeError(
                f"no usable checkpoint in {printable(self.folder)}:\n  {listed}\n--restart begins at step 0"
            )
        return None

    def load(
        self, name: str | os.PathLike[str], *, need: Collection[str] = (), only: Collection[str] | None = None
    ) -> Loaded:
        """Load the checkpoint called ``name`` in this store, or at that path; refuse it if it does not verify."""
        text = os.fspath(name).rstrip("/")
        path = text if "/" in text else self.disk.join(self.folder, text)
        try:
            return reading.load(self.disk, path, need=need, only=only, trust_owner=self.trust_owner)
        except ResumeError as error:
            raise ResumeError(f"{printable(os.path.basename(path))}: {error}") from error

    def rewind(self, step: int) -> None:
        """Resume from ``step`` on purpose: set aside what an earlier attempt saved after it."""
        self.set_aside([entry.name for entry in self.entries() if entry.step > step], "aside")

    def _candidates(self) -> list[tuple[Entry | None, str]]:
        """Return all checkpoints by step, oldest first; the entry is None if its manifest cannot be read."""
        found: list[tuple[int, int, str, Entry | None]] = []
        for name in self.disk.names(self.folder):
            match = STEP.fullmatch(name)
            if match is None:
                continue
            entry = self._entry(name)
            step = entry.step if entry else int(match[1])
            found.append((step, int(match[2] or 0), name, entry))
        # No two have the same name, and so no entries are compared.
        return [(entry, name) for _, _, name, entry in sorted(found)]

    def _entry(self, name: str) -> Entry | None:
        if name in self._entries:
            return self._entries[name]
        path = self.disk.join(self.folder, name)
        try:
            # Of any owner: one of another user counts here, and is refused by name when it is loaded, not passed over.
            manifest = reading.read_manifest(self.disk, path, trust_owner=True)
        except ResumeError:
            return None
        return self._entries.setdefault(name, Entry(name, path, manifest))
