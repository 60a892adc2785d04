"""Hands over what each of several processes knows alone, when all of them stop after the same iteration.

Each leaves its share (random numbers, its place in the data, unfinished gradients) in the work folder, and the first
process saves them all. If one of them is missing, the first saves alone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed import distributed_c10d

from etude.dialects.mmengine import files

#: Seconds for the other processes to leave their shares, and for the first one to save.
SHARING, SAVING = 10.0, 25.0


def shares(runner: Any, own: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Gather what every process knows alone, for the first of them; None for the others, and where one of them is
    missing.
    """
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
