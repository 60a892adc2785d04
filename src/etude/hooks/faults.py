"""Faults on purpose, as ``--chaos`` plans them: see :mod:`etude.chaos`."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude import chaos
from etude.chaos import Fault
from etude.checkpoint import disk
from etude.core.hook import Hook
from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.core.run import Run

_SIGNALS = {"kill": signal.SIGKILL, "sigterm": signal.SIGTERM, "sigint": signal.SIGINT, "usr1": signal.SIGUSR1}


class Faults(Hook):
    """Makes planned faults happen. Acts when a step's own work is done and its checkpoint, if one is due, is under way;
    a signal is seen within the same step."""

    priority = 115

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._at_step = [f for f in faults if f.where == "step" and f.what != "nan"]
        self._nan = {f.number for f in faults if f.what == "nan"}
        self._at_save = {f.number: f.what for f in faults if f.where == "save"}
        self._at_batch = {f.number for f in faults if f.where == "batch"}
        self._saves = 0

    def before_run(self, run: Run) -> None:
        if self._at_save:
            chaos.listen("save.begin", self._save_begins)
            chaos.listen("save.done", self._save_is_done)
        if self._at_batch:
            loader: Any = run.data["train"]
            if not getattr(loader, "workers", 0):
                raise ConfigError("--chaos worker-dies: there are no data workers", hint="data.train.workers=2")
            loader._make = Deadly(loader._make, frozenset(self._at_batch))

    def after_forward(self, run: Run) -> None:
        if run.step + 1 in self._nan:
            run.outputs["loss"].detach().fill_(float("nan"))

    def after_step(self, run: Run) -> None:
        for fault in [fault for fault in self._at_step if fault.number == run.done]:
            if fault.what == "raise":
                raise RuntimeError(f"--chaos raise@step={run.done}")
            os.kill(os.getpid(), _SIGNALS[fault.what])

    def after_run(self, run: Run) -> None:
        chaos.listen("save.begin", None)
        chaos.listen("save.done", None)

    def _save_begins(self) -> None:
        self._saves += 1
        what = self._at_save.get(self._saves)
        disk.set_gate(_GATES.get(what))

    def _save_is_done(self, path: str) -> None:
        disk.set_gate(None)
        if self._at_save.get(self._saves) == "bitflip":
            flip_bit(Path(path) / "model.safetensors")


class Deadly:
    """Makes batches as ``make`` does, except that the worker which comes to one of ``batches`` dies first."""

    def __init__(self, make: Callable[[Any], Any], batches: frozenset[int]) -> None:
        self.make, self.batches, self.parent = make, batches, os.getpid()

    def __call__(self, task: Any) -> Any:
        if task.batch + 1 in self.batches and os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.make(task)


def flip_bit(path: Path) -> None:
    """One bit in the middle of a file, as a tired disk does it: size and times stay."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def _kill(call: str, path: str, size: int) -> None:
    if call == "fsync":
        os.kill(os.getpid(), signal.SIGKILL)


def _no_space(call: str, path: str, size: int) -> None:
    if call == "write":
        raise disk.Torn(size // 2, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path))


def _bad_disk(call: str, path: str, size: int) -> None:
    if call == "fsync":
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def _slow(call: str, path: str, size: int) -> None:
    time.sleep(0.2)


_GATES: dict[str | None, disk.Gate] = {"kill": _kill, "enospc": _no_space, "eio": _bad_disk, "slow": _slow}
