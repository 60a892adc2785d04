"""Injects the faults that ``--chaos`` asks for: see :mod:`etude.checkpoint.storage.chaos`."""

from __future__ import annotations

import copy
import errno
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from etude.checkpoint.formats import background
from etude.checkpoint.storage import chaos, disk
from etude.checkpoint.storage.chaos import Fault
from etude.core.hook import Hook
from etude.core.update import Step
from etude.data.loader import Loader
from etude.errors import ConfigError

if TYPE_CHECKING:
    from etude.core.run import Run

_SIGNALS = {
    "kill": signal.SIGKILL,
    "kill-saved": signal.SIGKILL,
    "sigterm": signal.SIGTERM,
    "sigint": signal.SIGINT,
    "usr1": signal.SIGUSR1,
    "freeze": signal.SIGSTOP,
}
#: Seconds that a hook hangs which hangs.
_LONG = 3600.0


class Faults(Hook):
    """Makes planned faults happen. Acts when a step's own work is done and its checkpoint, if one is due, is under way;
    a signal is seen within the same step. :meth:`listen` and :meth:`rest` stand around the run."""

    priority = 115

    def __init__(self, faults: Iterable[Fault]) -> None:
        self._at_step = [f for f in faults if f.where == "step" and f.what != "nan"]
        self._nan = {f.number for f in faults if f.what == "nan"}
        self._at_save = {f.number: f.what for f in faults if f.where == "save"}
        self._at_batch = {f.number for f in faults if f.where == "batch"}
        self._saves = 0
        self._spoilt: Spoilt | None = None
        self._came: set[Fault] = set()

    def missed(self, run: Run) -> list[Fault]:
        """Return the faults at steps that a finished run did not reach."""
        return [fault for fault in self._at_step if fault not in self._came and fault.number > run.done]

    def listen(self) -> None:
        if self._at_save:
            chaos.listen("save.begin", self._save_begins)
            chaos.listen("save.done", self._save_is_done)
            chaos.listen("save.end", lambda: disk.set_gate(None))

    def rest(self) -> None:
        for name in ("save.begin", "save.done", "save.end"):
            chaos.listen(name, None)

    def before_run(self, run: Run) -> None:
        loader: Any = run.data.get("train")
        if self._at_batch and isinstance(loader, Loader):
            if not loader.workers:
                raise ConfigError("--chaos worker-dies: there are no data workers", hint="data.train.workers=2")
            loader._make = Deadly(loader._make, frozenset(self._at_batch))
            # Done: `before_step` need not kill a worker from outside.
            self._at_batch = set()

    def before_step(self, run: Run) -> None:
        """Inject faults into runs whose batches and losses are out of reach: kill a worker, spoil the model."""
        if run.step + 1 in self._at_batch:
            kill_a_worker(run.step + 1)
        if run.step + 1 in self._nan and not isinstance(run.update, Step):
            self._spoilt = Spoilt(run.model)

    def after_forward(self, run: Run) -> None:
        if run.step + 1 in self._nan and isinstance(run.update, Step):
            run.outputs["loss"].detach().fill_(float("nan"))

    def after_step(self, run: Run) -> None:
        if self._spoilt is not None:
            self._spoilt.close()
            self._spoilt = None
        for fault in [fault for fault in self._at_step if fault.number == run.done]:
            self._came.add(fault)
            if fault.what == "raise":
                raise RuntimeError(f"--chaos raise@step={run.done}")
            if fault.what == "hang":
                time.sleep(_LONG)
            if fault.what == "kill-saved":
                background.wait()
                if run.store is not None:
                    run.store.store.wait()
            if fault.what in _SIGNALS:
                os.kill(os.getpid(), _SIGNALS[fault.what])

    def _save_begins(self) -> None:
        self._saves += 1
        what = self._at_save.get(self._saves)
        disk.set_gate(_GATES.get(what))

    def _save_is_done(self, path: str) -> None:
        disk.set_gate(None)
        if self._at_save.get(self._saves) == "bitflip":
            flip_bit(weights_of(Path(path)))


class Spoilt:
    """Makes the outputs of a model NaN until it is closed."""

    def __init__(self, model: Any) -> None:
        self.called = False
        self._handle = model.register_forward_hook(self._spoil)

    def _spoil(self, model: Any, inputs: Any, output: Any) -> Any:
        self.called = True
        return _times_nan(output)

    def close(self) -> None:
        self._handle.remove()
        if not self.called:
            raise ConfigError("--chaos nan: the model as a whole is never called in this run, only parts of it")


def _times_nan(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value * float("nan") if value.is_floating_point() else value
    if isinstance(value, Mapping):
        spoilt = copy.copy(value)
        for key, item in value.items():
            spoilt[key] = _times_nan(item)  # type: ignore[index]
        return spoilt
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(_times_nan(item) for item in value)
    return value


def kill_a_worker(batch: int) -> None:
    """Kill one of the processes that load data."""
    workers = multiprocessing.active_children()
    if not workers:
        raise ConfigError(
            f"--chaos worker-dies@batch={batch}: there are no data workers", hint="have the loader use some"
        )
    workers[0].kill()


class Deadly:
    """Makes batches as ``make`` does, but kills the worker that reaches one of ``batches``."""

    def __init__(self, make: Callable[[Any], Any], batches: frozenset[int]) -> None:
        self.make, self.batches, self.parent = make, batches, os.getpid()

    def __call__(self, task: Any) -> Any:
        if task.batch + 1 in self.batches and os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.make(task)


def weights_of(path: Path) -> Path:
    """Return the file with the weights: the checkpoint itself, or the one in its folder that is named after the
    model."""
    return path if path.is_file() else next(path.glob("model*"))


def flip_bit(path: Path) -> None:
    """Flip one bit in the middle of a file, as a failing disk does: size and times stay."""
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
