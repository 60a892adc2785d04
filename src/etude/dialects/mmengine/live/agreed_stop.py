"""Stops several processes: they agree on the iteration they stop after, and hand over what each knows.

A signal reaches the processes of a run at different moments, between different iterations. Each writes down how far it
was. The iteration that all stop after is the next one, behind the farthest of them, in which they have to wait for one
another anyway: no process can have passed it before it can know of it. Then each leaves its share (random numbers, its
place in the data, unfinished gradients) in the work folder, and the first process saves them all. Nobody waits for a
process that has heard nothing: then the first one saves alone.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed import distributed_c10d

from etude.dialects.mmengine import files

#: Seconds for the other processes to say how far they are, to leave their shares, and for the first one to save.
HEARING, SHARING, SAVING = 3.0, 10.0, 25.0


class Agreement:
    """One process's part in it. ``apart``: at most so many iterations lie between two in which all wait for all."""

    def __init__(self, rank: int, size: int, apart: int) -> None:
        self._store: Any = distributed_c10d._get_default_store()
        self.rank, self.size, self.apart = rank, size, apart
        self._wished_at: float | None = None
        self._last: int | None = None

    def is_due(self, done: int) -> bool:
        """Whether to stop after iteration ``done``: it is the one that all have agreed on, or nobody else is heard."""
        keys = [f"etude/stop/{rank}" for rank in range(self.size)]
        if self._wished_at is None:
            self._wished_at = time.monotonic()
            self._store.set(keys[self.rank], str(done))
        if self._last is None and self._store.check(keys):
            self._last = max(int(self._store.get(key)) for key in keys) + self.apart
        if self._last is None:
            return time.monotonic() - self._wished_at > HEARING
        return done >= self._last


def shares(runner: Any, own: dict[str, Any]) -> list[dict[str, Any]] | None:
    """What every process knows alone, for the first of them; None for the others, and where one of them is missing."""
    store: Any = distributed_c10d._get_default_store()
    names = [os.path.join(runner.work_dir, ".etude", f"share-{rank}.pth") for rank in range(runner.world_size)]
    keys = [f"etude/share/{rank}/{runner.iter}" for rank in range(runner.world_size)]
    if runner.rank > 0:
        files.write(names[runner.rank], files.plain(own))
        store.set(keys[runner.rank], "there")
        return None
    try:
        store.wait(keys[1:], timedelta(seconds=SHARING))
        return [own, *(files.read(name) for name in names[1:])]
    except Exception as error:
        runner.logger.warning(f"not all processes have stopped after iteration {runner.iter}: {error}")
        return None
    finally:
        for name in names[1:]:
            files.remove(name)


def wait_for_save(runner: Any) -> None:
    """End together: a launcher kills the rest of the processes when it sees the first one gone."""
    store: Any = distributed_c10d._get_default_store()
    if runner.rank == 0:
        store.set("etude/saved", "")
        return
    with suppress(Exception):
        store.wait(["etude/saved"], timedelta(seconds=SAVING))
