"""Runs a function in several processes that know of each other."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

#: Seconds after which processes that wait for each other are killed.
PATIENCE = 120.0


def in_processes(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(rank)`` in ``count`` processes; assert that all end well."""
    assert exit_codes(count, work) == [0] * count


def exit_codes(count: int, work: Callable[[int], None]) -> list[int | None]:
    """Run ``work(rank)`` in ``count`` processes. When one fails, the others are given a second to end, too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def begin(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}

        from etude_libai.live import topology

        topology._util = None
        try:
            work(rank)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)

    made = [multiprocessing.get_context("fork").Process(target=begin, args=(rank,)) for rank in range(count)]
    for process in made:
        process.start()
    end = time.monotonic() + PATIENCE
    while any(process.is_alive() for process in made) and time.monotonic() < end:
        if any(process.exitcode for process in made):  # the others would wait for it
            break
        time.sleep(0.02)
    for process in made:
        if process.is_alive():
            process.join(1.0)
            process.kill()
        process.join()
    return [process.exitcode for process in made]


def set_up(tensor: int = 1, pipeline: int = 1, zero: int = 0, layers: int = 2) -> Any:
    """Set up parallel sizes as a config does; return OneFlow."""
    import oneflow as flow
    from omegaconf import DictConfig

    from libai.utils import distributed as dist

    sizes = {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
    dist.setup_dist_util(DictConfig({**sizes, **({"pipeline_num_layers": layers} if pipeline > 1 else {})}), zero=zero)
    return flow
