"""Saves checkpoints of several ranks: rank 0 owns the folder, and each rank writes its own shards.

.. code-block:: text

    in the background      rank 0                             every other rank
    ready                                                     all of its weights are finite, or one is not
    place                  the folder that it has made
    done                   its own files                      its files are on the disk: sizes and checksums
    then                   manifest · rename: the checkpoint is there

Every rank calls the same methods in the same order. Whatever depends on the disk or the clock is what rank 0 says.
"""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from torch import distributed

from etude.checkpoint.load import Loaded
from etude.checkpoint.manifest import Stored
from etude.checkpoint.snapshot import Arena
from etude.checkpoint.storage import chaos
from etude.checkpoint.store import Store
from etude.checkpoint.write import Job, RankBarrier, write_files
from etude.dist import group
from etude.dist.jobs import secret
from etude.dist.layout.shards import has_shards, tensors_in
from etude.errors import PeerError, ResumeError

#: Saves in shards of this process: the same number on every rank.
_saves = itertools.count()
_PAUSE = 0.01


class Mailbox:
    """Exchanges values by key between background threads of ranks, through the store of their rendezvous."""

    def __init__(self, name: str) -> None:
        self._store = group.mail(name)

    def put(self, key: str, value: Any) -> None:
        self._store.set(key, secret.closed(json.dumps(value).encode()))

    def get(self, key: str, patience: Callable[[], float], whose: str) -> Any:
        """Wait for the value of ``key``; an error names ``whose`` it is when ``patience()`` seconds have passed."""
        began = time.monotonic()
        while not self._store.check([key]):
            waited = time.monotonic() - began
            if waited > patience():
                raise PeerError(f"{whose} has not written its share of a checkpoint for {waited:.0f} s")
            time.sleep(_PAUSE)
        try:
            return json.loads(secret.opened(self._store.get(key)))
        except secret.BrokenSeal as error:
            raise PeerError(f"{error}: somebody else writes for {whose} into the store of the ranks") from error

    def forget(self, key: str) -> None:
        """Delete a value; a store that cannot delete keeps it."""
        with suppress(RuntimeError, NotImplementedError):
            self._store.delete_key(key)


class ShardWriters(RankBarrier):
    """The other ranks of a sharded save, as rank 0 sees them."""

    def __init__(self, patience: Callable[[], float]) -> None:
        self.mail, self.patience = Mailbox(f"save/{next(_saves)}"), patience
        self.ranks = range(1, distributed.get_world_size())

    def unsound(self) -> str | None:
        found = [self._hear("ready", rank) for rank in self.ranks]
        return next((name for name in found if name), None)

    def begin(self, name: str) -> None:
        self.mail.put("place", name)

    def end(self) -> tuple[dict[str, Stored], dict[str, tuple[str, ...]]]:
        files: dict[str, Stored] = {}
        shards: dict[str, tuple[str, ...]] = {}
        for rank in self.ranks:
            said = self._hear("done", rank)
            if said["error"]:
                raise OSError(f"rank {rank} on {said['error']}")
            files |= {name: Stored(*stored) for name, stored in said["files"].items()}
            for part, name in said["parts"].items():
                shards[part] = (*shards.get(part, ()), name)
        self.mail.forget("place")
        return files, shards

    def _hear(self, what: str, rank: int) -> Any:
        said = self.mail.get(f"{what}/{rank}", self.patience, f"rank {rank}")
        # Every save has new keys, and the store would keep them all.
        self.mail.forget(f"{what}/{rank}")
        return said


class Leader(Store):
    """The store of rank 0."""

    def save(self, state: Mapping[str, Any], *, hold: bool = False, **options: Any) -> None:
        # Held back until its crew is known: the thread that writes waits for the other ranks.
        super().save(state, hold=True, **options)
        if self._held is not None and has_shards(state):
            self._held.others = ShardWriters(lambda: self.patience_for_ranks)
        if not hold:
            self.commit()

    def _work(self, job: Job) -> None:
        super()._work(job)
        if job.outcome.error is not None:
            # The others wait for the name of a folder; an empty one tells them that there is none.
            with suppress(RuntimeError):
                job.others.begin("")

    def is_free(self, within: float = 0.0) -> bool:
        return group.first(lambda: super(Leader, self).is_free(within))

    def resume(self, *, need: Collection[str] = ()) -> Loaded | None:
        """Return the newest checkpoint that every rank can read."""
        found: list[Loaded | None] = []

        def find() -> str | None:
            found.append(super(Leader, self).resume(need=need))
            return found[0].path if found[0] is not None else None

        group.first(find)
        return found[0]

    def load(self, name: Any, *, need: Collection[str] = (), only: Collection[str] | None = None) -> Loaded:
        """Load a checkpoint. While all ranks look for one, the others read it too; a rank that cannot is named."""
        loaded = super().load(name, need=need, only=only)
        for rank, wrong in enumerate(group.ask(loaded.path)):
            if wrong:
                raise ResumeError(f"{loaded.path.rpartition('/')[2]}: rank {rank} on {wrong}")
        return loaded


class Follower(Store):
    """The store of the other ranks: they write only their own shards, and read what rank 0 reads."""

    def __init__(self, folder: Any, **options: Any) -> None:
        super().__init__(folder, **{**options, "write": False})
        self._rank = distributed.get_rank()
        self._arena = Arena(self._rank)
        self._mail: Mailbox | None = None
        self._read: Loaded | None = None

    def save(self, state: Mapping[str, Any], *, hold: bool = False, **options: Any) -> None:
        """Save this rank's pieces of sharded tensors; rank 0 also saves all the rest."""
        if has_shards(state):
            super().save(state, hold=True, **options)
            self._mail = Mailbox(f"save/{next(_saves)}")
            if not hold:
                self.commit()

    def _work(self, job: Job) -> None:
        """Write in the background; rank 0 reports failures."""
        mail = self._mail
        assert mail is not None
        said: dict[str, Any] = {"error": ""}
        try:
            mail.put(f"ready/{self._rank}", job.snapshot.unsound("model", job.watch) or "")
            name = mail.get("place", lambda: self.patience_for_ranks, "rank 0")
            if name:
                place = self.disk.join(self.folder, name)
                files = job.snapshot.files
                with chaos.saving(self.disk.join(place, files[0].name) if files else place):
                    stored = write_files(self.disk, place, files)
                said["files"] = {name: (one.size, one.sha256) for name, one in stored.items()}
                said["parts"] = {part: name for part, name in job.snapshot.parts.items() if name is not None}
        except Exception as error:
            said["error"] = f"{socket.gethostname()}: {error}"
        # The store goes away with the process that holds it, and nobody is left to hear this.
        with suppress(RuntimeError):
            mail.put(f"done/{self._rank}", said)
        job.done.set()

    def prepare(self, state: Mapping[str, Any]) -> None:
        if has_shards(state):
            super().prepare({"": [tensor for tensor in tensors_in(state) if has_shards(tensor)]})

    def prune(self) -> list[str]:
        return []

    def is_free(self, within: float = 0.0) -> bool:
        # Rank 0 alone decides. This rank takes part in the vote, and its own answer does not count.
        return group.first(lambda: True)

    def resume(self, *, need: Collection[str] = ()) -> Loaded | None:
        """Return what rank 0 reads."""
        path: str | None = group.first(lambda: None, self._try)
        return self._read if path else None

    def _try(self, path: str) -> str:
        try:
            self._read = self.load(path)
        except ResumeError as error:
            return f"{socket.gethostname()}: {error}"
        return ""
