"""LiBai's writers: console lines, ``metrics.json``, TensorBoard."""

from __future__ import annotations

import datetime
import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from etude.events.trackers.outbox import Outbox
from etude.events.trackers.tensorboard import EventFiles
from etude_libai.live.events.storage import get_event_storage


class EventWriter:
    """The base class of writers. ``write`` takes new values from the current storage."""

    def write(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Recording(EventWriter):
    """A writer of scalars. It writes the latest (smoothed) value of each once.

    Values of iterations up to the newest one that was written earlier are left out.
    """

    _last_write = -1
    _window_size: int

    def _news(self) -> list[tuple[str, float, int]]:
        """Return the scalars that are not written yet, with their iterations."""
        latest = get_event_storage().latest_with_smoothing_hint(self._window_size)
        found = [(name, value, at) for name, (value, at) in latest.items() if at > self._last_write]
        self._last_write = max([self._last_write, *(at for _, _, at in found)])
        return found


class JSONWriter(Recording):
    """Appends one JSON object per iteration to a file, each on its own line."""

    def __init__(self, json_file: str, window_size: int = 20) -> None:
        self._file_handle = open(json_file, "a", encoding="utf-8")  # noqa: SIM115
        self._window_size = window_size
        self._size = self._file_handle.tell()

    def write(self) -> None:
        lines: dict[int, dict[str, Any]] = {}
        for name, value, iteration in self._news():
            lines.setdefault(iteration, {})[name] = value
        for iteration, scalars in lines.items():
            scalars["iteration"] = iteration
            self._file_handle.write(json.dumps(scalars, sort_keys=True) + "\n")
        self._file_handle.flush()
        self._size = self._file_handle.tell()
        try:
            os.fsync(self._file_handle.fileno())
        except (AttributeError, OSError):
            return

    def close(self) -> None:
        self._file_handle.close()

    def state_dict(self) -> dict[str, Any]:
        return {"last_write": self._last_write, "size": self._size}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remove the lines that an interrupted run wrote after its checkpoint: the resumed run writes them again."""
        self._last_write, size = int(state["last_write"]), int(state["size"])
        if size < self._size:
            self._file_handle.truncate(size)
            self._file_handle.seek(size)
            self._size = size


class TensorboardXWriter(Recording):
    """Writes scalars, images and histograms to a TensorBoard event file."""

    opens_at_once = True

    def __init__(self, log_dir: str, window_size: int = 20, **kwargs: Any) -> None:
        EventFiles.require("the TensorBoard writer")
        self._window_size, self._arguments = window_size, (log_dir, kwargs)
        self._files = EventFiles()
        self._outbox = Outbox("TensorBoard", after=self._files.flush)
        self._is_open = False
        if self.opens_at_once:
            self._open()

    @property
    def _writer(self) -> Any:
        """Return the ``SummaryWriter``, for your own calls."""
        self._open()
        return self._files.writer

    def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            folder, options = self._arguments
            self._outbox.ask(self._files.begin, folder, **options)

    def write(self) -> None:
        storage = get_event_storage()
        for name, value, iteration in self._news():
            self._call("add_scalar", name, value, iteration)
        for name, image, step in storage._vis_data:
            self._call("add_image", name, image, step)
        storage.clear_images()
        for options in storage._histograms:
            self._call("add_histogram_raw", **options)
        storage.clear_histograms()

    def _call(self, method: str, *args: Any, **options: Any) -> None:
        self._open()
        self._outbox.put(self._files.call, method, *args, **options)

    def close(self) -> None:
        self._outbox.close(self._files.finish if self._is_open else None)

    def state_dict(self) -> dict[str, Any]:
        return {"last_write": self._last_write}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Hide the values that an interrupted run wrote after its checkpoint."""
        self._last_write = int(state["last_write"])
        options = self._arguments[1]
        options.setdefault("purge_step", self._last_write + 1)
        if self._is_open:
            self._outbox.put(self._files.begin_again, **options)


class Estimating(EventWriter):
    """A writer that estimates the remaining time, from recorded times or from the time between two writes."""

    _max_iter: int | None
    #: Iteration and time of the last write, as long as no times are recorded.
    _last_write: tuple[int, float] | None = None

    def _get_eta(self, storage: Any) -> str | None:
        """Return ``H:MM:SS``, or None while it is unknown. Records ``eta_seconds`` if there are recorded times."""
        if self._max_iter is None:
            return None
        iteration = storage.iter
        left = self._max_iter - iteration - 1
        history = storage.histories().get("time")
        if history is not None and history.values():
            seconds = history.median(1000) * left
            storage.put_scalar("eta_seconds", seconds, smoothing_hint=False)
            return str(datetime.timedelta(seconds=int(seconds)))
        known, self._last_write = self._last_write, (iteration, time.perf_counter())
        if known is None or known[0] == iteration:
            return None
        per_iteration = (time.perf_counter() - known[1]) / (iteration - known[0])
        return str(datetime.timedelta(seconds=int(per_iteration * left)))


class CommonMetricPrinter(Estimating):
    """Logs one line: losses, times, throughput, learning rate."""

    def __init__(self, batch_size: int, max_iter: int) -> None:
        self.logger = logging.getLogger("libai.utils.events")
        self._max_iter, self._batch_size = max_iter, batch_size

    def write(self) -> None:
        storage = get_event_storage()
        iteration = storage.iter
        if iteration == self._max_iter:
            return
        # The windows are LiBai's: all times, 20 values of data_time, 200 of the losses.
        histories = storage.histories()
        seconds = histories["time"].global_avg() if "time" in histories else None
        fetch = histories["data_time"].avg(20) if "data_time" in histories else None
        lr = f"{histories['lr'].latest():.2e}" if "lr" in histories else "N/A"
        eta = self._get_eta(storage)
        losses = "  ".join(
            f"{name}: {history.median(200):.4g}" for name, history in histories.items() if "loss" in name
        )
        self.logger.info(
            f" {f'eta: {eta}  ' if eta else ''}iteration: {iteration}/{self._max_iter}"
            f"  consumed_samples: {storage.samples}  {losses}"
            f"  {f'time: {seconds:.4f} s/iter  ' if seconds is not None else ''}"
            f"{f'data_time: {fetch:.4f} s/iter' if fetch is not None else ''}"
            f" {f'total_throughput: {self._batch_size / seconds:.2f} samples/s' if seconds else ''}"
            f" lr: {lr}  "
        )
