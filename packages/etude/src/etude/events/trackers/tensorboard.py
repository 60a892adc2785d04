"""Writes event files for TensorBoard: scalars, images, histograms and texts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from etude.errors import MissingExtra
from etude.events.record import Record
from etude.events.trackers.outbox import put_time
from etude.events.trackers.service import Service
from etude.events.trackers.tracker import Job, Tracker


class EventFiles(Service):
    """Adapts torch's ``SummaryWriter`` to the methods of every tracker. ``writer`` exists after ``begin``."""

    package, extra = "tensorboard", "tracking"

    def begin(self, folder: str | Path, **settings: Any) -> str:
        """Open a new event file in ``folder``; ``purge_step`` hides what earlier files have from that step on."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtra(self.package, self.extra, "writing for TensorBoard") from None
        # Absolute: other threads open files later, when the program may have changed its directory.
        self.home, self._empty = Path(folder).absolute(), True
        before = set(self._files())
        self.writer: Any = SummaryWriter(str(self.home), **settings)
        self._own = [path for path in self._files() if path not in before]
        return str(folder)

    def begin_again(self, purge_step: int, **settings: Any) -> None:
        """Begin another file after a resume; one that holds nothing is removed."""
        self.finish()
        for path in self._own if self._empty else ():
            with suppress(OSError):
                path.unlink()
        # TensorBoard reads the files in the order of their names: the second, then a count. Within one second the
        # tenth comes before the ninth.
        latest = max((int(path.name.split(".")[3]) for path in self._files()), default=0)
        time.sleep(min(1.0, max(0.0, latest + 1 - time.time())))
        self.begin(self.home, purge_step=purge_step, **settings)

    def scalars(self, values: Mapping[str, float], step: int | None) -> None:
        """Write one event for all values: each event goes through another thread, byte by byte in Python."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._empty = False
        pairs = [Summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()]
        self.writer.file_writer.add_summary(Summary(value=pairs), step, put_time())

    def image(self, name: str, value: Any, step: int | None) -> None:
        self.call("add_image", name, value, step, dataformats="HWC" if value.ndim == 3 else "HW")

    def histogram(self, name: str, value: Any, step: int) -> None:
        self.call("add_histogram", name, value, step)

    def text(self, name: str, value: str, step: int | None) -> None:
        self.call("add_text", name, value, step)

    def call(self, method: str, *args: Any, **settings: Any) -> None:
        """Call a method of the ``SummaryWriter``, such as ``add_images``."""
        self._empty = False
        settings.setdefault("walltime", put_time())
        getattr(self.writer, method)(*args, **settings)

    def flush(self) -> None:
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()

    def _files(self) -> list[Path]:
        return list(self.home.glob("events.out.tfevents.*")) if self.home.is_dir() else []


class TensorBoard(EventFiles, Tracker):
    """Event files in ``folder/tensorboard``. A value ``loss`` of the split ``val`` is shown as ``val/loss``."""

    package = name = "tensorboard"

    def __init__(self, folder: Path, name: str = "tensorboard") -> None:
        super().__init__(folder, system=False)
        self.below = name
        self._purge: int | None = None
        self._latest = 0

    def open(self, job: Job) -> str:
        self.begin(job.folder / self.below, purge_step=self._purge)
        return ""

    def write(self, record: Record) -> None:
        self._latest = max(self._latest, record.step)
        super().write(record)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._latest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Hide what was written after the checkpoint."""
        self._latest = int(state["step"])
        self._purge = self._latest + 1
        if self._began:
            self._outbox.put(self.begin_again, self._purge)
