"""Starts the ranks of this machine and waits for them: all come to an orderly end, or the first failure ends the rest.

A rank is a fork of a server that has torch loaded already, so that a restart takes a second. A fork of the launcher,
which has run operations in several threads, was seen to hang.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from typing import Any

#: Exit codes of a normal end: all ranks reach it together.
ORDERLY = (0, 75, 130, 143)
#: Loaded once, before any rank is made. The first ties the server to this process.
_PRELOAD = [
    "etude.dist.jobs.fork_server",
    "torch",
    "torch.distributed",
    "torch._dynamo",
    "etude.build",
    "etude.api",
    "etude.session.session",
    "etude.cli",
]


class Failed(Exception):
    """A rank has ended with an exit code that is no orderly one, or minus the signal that killed it."""

    def __init__(self, rank: int, code: int) -> None:
        super().__init__(f"rank {rank} has ended with {code}")
        self.rank, self.code = rank, code


def run(
    target: Callable[..., None], arguments: Sequence[Any], environments: Mapping[int, dict[str, str]], grace: float
) -> int:
    """Call ``target(*arguments, environment)`` in a process for each rank; return the most urgent of the orderly exit
    codes. Raise Failed if one ends otherwise, after the others have had ``grace`` seconds to end."""
    multiprocessing.set_forkserver_preload(_PRELOAD)
    context: Any = multiprocessing.get_context("forkserver")
    processes = {}
    codes: list[int] = []
    try:
        for rank, environment in environments.items():
            process = context.Process(target=target, args=(*arguments, environment), name=f"etude-rank-{rank}")
            processes[rank] = process
            process.start()
        running = {process.sentinel: rank for rank, process in processes.items()}
        while running:
            for sentinel in wait(list(running)):
                rank = running.pop(sentinel)
                processes[rank].join()
                codes.append(processes[rank].exitcode)
                if codes[-1] not in ORDERLY:
                    raise Failed(rank, codes[-1])
    finally:
        _end([process for process in processes.values() if process.pid is not None], grace)
    return max(codes, key=ORDERLY.index)


def _end(processes: Sequence[Any], grace: float) -> None:
    """End what still runs: with SIGTERM, and after ``grace`` seconds by force."""
    deadline = time.monotonic() + grace
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
