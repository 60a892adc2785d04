"""Starts a script's ``main`` in several processes, as detectron2's ``launch`` does."""

from __future__ import annotations

import os
import pickle
import runpy
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
from torch.multiprocessing.spawn import ProcessExitedException

from etude.errors import EtudeError, printable

#: The timeout of collectives, as in detectron2.
DEFAULT_TIMEOUT = timedelta(minutes=30)
#: Seconds that other ranks wait before they print an error, so that rank 0 prints it first.
_WAIT_FOR_RANK_0 = 5.0


def launch(
    main_func: Callable[..., Any],
    num_gpus_per_machine: int,
    num_machines: int = 1,
    machine_rank: int = 0,
    dist_url: str | None = None,
    args: tuple[Any, ...] = (),
    timeout: timedelta = DEFAULT_TIMEOUT,
) -> None:
    """Call ``main_func(*args)`` here, or in one new process per device if there are several."""
    world = num_machines * num_gpus_per_machine
    if world <= 1:
        main_func(*args)
        return
    if dist_url in (None, "auto"):
        assert num_machines == 1, "dist_url=auto not supported in multi-machine jobs."
        dist_url = f"tcp://127.0.0.1:{_free_port()}"
    called = _Call.of(main_func, args)
    given = (called, world, num_gpus_per_machine, machine_rank, dist_url, timeout)
    with _hidden_main():
        started: Any = torch.multiprocessing.spawn(  # type: ignore[attr-defined,no-untyped-call]
            _worker, nprocs=num_gpus_per_machine, args=given, daemon=False, join=False
        )
    try:
        while not started.join():
            pass
    except ProcessExitedException as ended:
        if ended.exit_code and ended.exit_code > 1:  # the process has printed its error
            raise SystemExit(ended.exit_code) from ended
        raise


@dataclass(frozen=True)
class _Call:
    """A pickled call, and the script that a new process has to run first to unpickle it."""

    file: str
    pickled: bytes

    @classmethod
    def of(cls, function: Callable[..., Any], args: tuple[Any, ...]) -> _Call:
        pickled, script = pickle.dumps((function, args)), getattr(sys.modules["__main__"], "__file__", None)
        return cls(os.path.abspath(script) if script and b"__main__" in pickled else "", pickled)

    def __call__(self) -> None:
        from etude.dialects import imports

        imports.install()
        if self.file:
            _run_script(self.file)
        function, args = pickle.loads(self.pickled)
        function(*args)


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide ``__main__``'s file: spawned processes would run the script before Étude's import names are installed."""
    main = sys.modules["__main__"]
    file = main.__dict__.pop("__file__", None)
    spec, main.__spec__ = main.__spec__, None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _run_script(path: str) -> None:
    """Run the script without its ``__main__`` part, and make it ``__main__`` for unpickling."""
    module = ModuleType("__mp_main__")
    module.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _worker(
    local_rank: int, called: _Call, world: int, per_machine: int, machine_rank: int, dist_url: str, timeout: timedelta
) -> None:
    rank = machine_rank * per_machine + local_rank
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(per_machine),
    }
    torch.distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=dist_url,
        world_size=world,
        rank=rank,
        timeout=timeout,
    )
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank)
    try:
        called()
    except Exception as error:
        reported = getattr(error, "etude_reported", error)
        if not isinstance(reported, EtudeError):
            raise
        if local_rank:  # rank 0 prints an error that all ranks have, and its end stops the others
            time.sleep(_WAIT_FOR_RANK_0)
        print("\n".join(f"etude: error: {printable(line)}" for line in str(reported).splitlines()), file=sys.stderr)
        sys.exit(reported.exit_code)
    finally:
        torch.distributed.destroy_process_group()
