"""Writes the ledger of a run: each step is noted in a list, and a thread makes rows of it when a log line is due."""

from __future__ import annotations

import os
import queue
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etude.core.hook import FunctionHook, Hook
from etude.data.order import Task
from etude.data.torch_loader.position import taken_from
from etude.errors import Diverged
from etude.events.record import Record, one_row
from etude.ledger import rows

if TYPE_CHECKING:
    from etude.core.run import Run

#: Steps that are noted before they are packed, if no log line comes sooner.
_MANY = 1000
#: Seconds between two times that rows are written, unless there are many or a checkpoint is due.
_SECONDS = 2.0
#: Bytes of rows that wait for a full disk; beyond that the ledger is given up.
_MOST_KEPT = 8 << 20


class Ledger:
    """A writer of events that keeps one row per step. Values stay on their device until a log line is due."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._count, self._digest = self._opened()
        self._kept = b""
        self._noted: list[tuple[int, Any, Any, Any]] = []
        self._packed_at = time.monotonic()
        #: Rows that a resume has cut off. The steps are done again, and must come out the same.
        self._cut: rows.Rows = np.empty(0, rows.ROW)
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._given_up = False

    def _opened(self) -> tuple[int, int]:
        """Return how many rows the file has, and the digest of the last one. A new or foreign file begins anew."""
        size = os.fstat(self._fd).st_size
        count = (size - len(rows.HEADER)) // rows.ROW.itemsize
        if count < 0 or os.pread(self._fd, len(rows.HEADER), 0) != rows.HEADER:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, rows.HEADER, 0)
            return 0, 0
        return count, self._digest_of(count)

    def _digest_of(self, count: int) -> int:
        """Return the rolling digest after ``count`` rows."""
        if count == 0:
            return 0
        return int.from_bytes(os.pread(self._fd, 8, rows.size_of(count) - 8), "little")

    # -- in the thread of the run ----------------------------------------------------------------------------------

    def note(self, run: Run) -> None:
        """Note the step that has just been done. Called at ``after_step``."""
        loss = run.loss if run.loss is not None else _loss_in(run.outputs)
        self._noted.append((run.step + 1, loss, run.norm, getattr(run.data["train"], "task", None)))
        run.norm = None
        if len(self._noted) >= _MANY:
            self._pack()

    def write(self, record: Record) -> None:
        """Let the thread write the rows of the steps since the last record."""
        # Few rows at a time cost several times as much: the thread would take turns with the run's at each line.
        if self._noted and time.monotonic() - self._packed_at > _SECONDS:
            self._pack()

    def _pack(self) -> None:
        noted, self._noted, self._packed_at = self._noted, [], time.monotonic()
        steps, losses, norms, ids = zip(*noted, strict=True)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="etude-ledger", daemon=True)
            self._thread.start()
        self._jobs.put((steps[0], losses, norms, ids))

    def _wait(self) -> None:
        """Wait until the thread has written everything."""
        if self._noted:
            self._pack()
        if self._thread is not None:
            done = threading.Event()
            self._jobs.put(done)
            done.wait()

    def state_dict(self) -> dict[str, Any]:
        """Return how many rows there are and the rolling digest of the last one."""
        self._wait()
        return {"rows": self._count, "digest": f"{self._digest:016x}"}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Cut off what came after a checkpoint. Its steps are done again, and compared with what is cut off."""
        self._wait()
        self._noted = []
        count, digest = int(state.get("rows", 0)), int(str(state.get("digest", "0")), 16)
        if self._count < count or self._digest_of(count) != digest:
            warnings.warn(
                f"{self.path.name} is not the one that the checkpoint was made with; a new one begins", stacklevel=2
            )
            count = 0
        cut = os.pread(self._fd, rows.size_of(self._count) - rows.size_of(count), rows.size_of(count))
        self._cut = np.frombuffer(cut[: len(cut) // rows.ROW.itemsize * rows.ROW.itemsize], rows.ROW)
        os.ftruncate(self._fd, rows.size_of(count))
        self._count, self._digest = count, self._digest_of(count)

    def sync(self) -> None:
        """Sync every row so far to the disk."""
        with suppress(OSError):
            os.fsync(self._fd)

    def close(self) -> None:
        if self._fd < 0:
            return
        self._wait()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        if self._kept:
            lost = len(self._kept) // rows.ROW.itemsize
            warnings.warn(f"{self.path.name}: the last {lost} rows are lost, because the disk is full", stacklevel=2)
        fd, self._fd = self._fd, -1
        os.close(fd)

    # -- in the thread of the ledger ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, threading.Event):
                job.set()
            elif not self._given_up:
                try:
                    self._add(*job)
                except Exception as error:  # a ledger is no reason to end a run
                    self._given_up = True
                    text = f"{self.path.name} is not continued ({type(error).__name__}: {error}); training goes on"
                    warnings.warn(text, stacklevel=2)

    def _add(self, first: int, losses: tuple[Any, ...], norms: tuple[Any, ...], ids: tuple[Any, ...]) -> None:
        ids = tuple(one.indices if isinstance(one, Task) else one for one in ids)
        added = rows.made(first, _read(losses), _read(norms), ids, self._digest)
        self._digest = int(added["digest"][-1])
        if len(self._cut):
            self._compare(added)
        self._kept += added.tobytes()
        try:
            rest, at = memoryview(self._kept), rows.size_of(self._count)
            while rest:
                written = os.pwrite(self._fd, rest, at)
                rest, at = rest[written:], at + written
        except OSError:
            if len(self._kept) > _MOST_KEPT:
                raise
            return
        self._count += len(self._kept) // rows.ROW.itemsize
        self._kept = b""

    def _compare(self, added: rows.Rows) -> None:
        """Compare steps that are done a second time with the first time."""
        again = min(len(added), len(self._cut))
        before, now = self._cut[:again], added[:again]
        different = np.flatnonzero(before["digest"] != now["digest"])
        self._cut = self._cut[again:] if not len(different) else self._cut[:0]
        if len(different) and before["step"][0] == now["step"][0]:
            step = int(now["step"][different[0]])
            text = f"step {step} came out differently than before the resume; `etude diff` and `etude replay` show more"
            warnings.warn(text, stacklevel=2)


class Noting(Hook):
    """Notes each step in the ledger before any other hook acts: one of them may save, or fail."""

    priority = -(1 << 30)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def after(self) -> list[Hook]:
        """The hooks that end the row of a step after all others; they have to be added, too."""
        own = self._ledger
        return [FunctionHook(own.finish, "after_step", priority=1 << 30)] if isinstance(own, DrivenLedger) else []

    def calls(self) -> Mapping[str, Any]:
        return {"after_step": self._ledger.note, "on_error": self._note_failed}

    def _note_failed(self, run: Run) -> None:
        """Note the step that a loss ended which is not finite: that is the step somebody will want to see."""
        if is_diverged(run.error) and run.stage == "step":
            self._ledger.note(run)


class OwnLedger(Ledger):
    """A ledger whose state no event writer restores: of a run that drives itself, or of a rank other than the first.

    It finds its place with the first step that is noted.
    """

    _begun = False

    def note(self, run: Run) -> None:
        if not self._begun:
            self._go_on(run.step, run.history_state)
        super().note(run)

    def _go_on(self, step: int, state: Mapping[str, Any] | None) -> None:
        """Cut off what came after ``step``; begin anew where the rows before it are not there."""
        self._begun = True
        first = int.from_bytes(os.pread(self._fd, 4, rows.size_of(0)), "little") if self._count else 1
        count = step - first + 1
        if step and 0 < count <= self._count:
            here = {"rows": count, "digest": f"{self._digest_of(count):016x}"}
            if state is None or dict(state) == here:
                self.load_state_dict(here)
                return
        if self._count:
            if step:
                text = f"{self.path.name} has not the rows of the {step} steps before this resume; a new one begins"
                warnings.warn(text, stacklevel=2)
            os.replace(self.path, f"{self.path}.{time.strftime('%Y%m%d-%H%M%S')}")
            os.close(self._fd)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._count, self._digest = self._opened()


class DrivenLedger(OwnLedger):
    """The ledger of a run that the runner of another system drives.

    Its runner may compute the norm in a hook after the step: the row of a step stays open until all hooks have acted,
    or one of them saves.
    """

    _open: tuple[Run, int, Any, Any] | None = None

    def note(self, run: Run) -> None:
        if not self._begun:
            self._go_on(run.step, run.history_state)
        self.finish()
        self._open = run, run.step + 1, loss_of(run), samples_of(run)

    def finish(self, run: Run | None = None) -> None:
        """End the row of the last step."""
        if self._open is not None:
            (run, step, loss, ids), self._open = self._open, None
            self._noted.append((step, loss, run.norm, ids))
            run.norm = None
            if len(self._noted) >= _MANY or time.monotonic() - self._packed_at > _SECONDS:
                self._pack()

    def _wait(self) -> None:
        self.finish()
        super()._wait()


def state_of_ledger(run: Run) -> dict[str, Any] | None:
    """Return what a checkpoint of another system keeps of the ledger; at a resume it is ``run.history_state``."""
    return None if run.history is None else dict(run.history.state_dict())


def is_diverged(error: BaseException | None) -> bool:
    """Return whether a loss that is not finite has ended a run, whatever the other system raises then."""
    return isinstance(getattr(error, "etude_reported", error), Diverged)


def loss_of(run: Run) -> Any:
    """Return the loss of the step that has just been done; None if nobody shows it."""
    return run.loss if run.loss is not None else _loss_in(run.outputs)


def samples_of(run: Run) -> Any:
    """Return the indices of the samples in the batch of the step that has just been done; None if unknown."""
    if run.samples is not None:
        return run.samples
    loader = run.data.get("train")
    task = getattr(loader, "task", None)
    return taken_from(loader) if task is None else task.indices


def _loss_in(outputs: Any) -> Any:
    """Return the loss in what an update of your own has returned; None if it shows none."""
    loss: Any = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    if hasattr(loss, "detach") and loss.ndim == 0:
        return loss.detach()
    return loss if isinstance(loss, int | float) else None


def _read(values: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return values as an array; missing ones are NaN. This waits for a device, in the thread of the ledger."""
    first = next((value for value in values if value is not None), None)
    if first is None:
        return np.full(len(values), np.nan)
    if getattr(first, "is_cpu", True):  # one by one is twice as fast as together, where nothing has to be fetched
        return np.array([np.nan if one is None else one.item() if hasattr(one, "item") else one for one in values])
    # Of the kind of the others: values of several kinds would have to be read one by one.
    missing = first.new_tensor(float("nan"))
    row: np.ndarray[Any, Any] = one_row([missing if one is None else one for one in values]).double().cpu().numpy()
    return row
