"""Keeps recent values in memory, for plots in notebooks."""

from __future__ import annotations

import time

from etude.events.record import Record, is_timing
from etude.units import duration

#: Points per value; beyond that every second one is forgotten.
MOST = 2000


class History:
    """A writer whose ``curves`` hold ``(step, value)`` pairs by ``split/name``; timings have no split."""

    def __init__(self) -> None:
        self.curves: dict[str, list[tuple[float, float]]] = {}

    def write(self, record: Record) -> None:
        for name, value in record.values.items():
            points = self.curves.setdefault(name if is_timing(name) else f"{record.split}/{name}", [])
            points.append((float(record.step), value))
            if len(points) > MOST:
                del points[1:-1:2]

    def close(self) -> None: ...


class LiveCurves(History):
    """Shows a progress bar and the curves of loss and metrics while a notebook cell trains, at most once a second."""

    def __init__(self, total: int | None = None) -> None:
        super().__init__()
        self.total, self._step = total, 0
        self._first: int | None = None  # a resumed run begins later
        self._began = time.monotonic()
        self._shown = float("-inf")
        self._handle: object | None = None

    def write(self, record: Record) -> None:
        super().write(record)
        if self._first is None:
            self._first, self._began = record.step, time.monotonic()
        self._step = max(self._step, record.step)
        self._show(force=False)

    def close(self) -> None:
        self._show(force=True)

    def _show(self, *, force: bool) -> None:
        if not self.curves or (not force and time.monotonic() - self._shown < 1.0):
            return
        self._shown = time.monotonic()
        from IPython.display import HTML, display

        picture = HTML(self.html())
        if self._handle is None:
            self._handle = display(picture, display_id=True)
        else:
            self._handle.update(picture)  # type: ignore[attr-defined]

    def html(self) -> str:
        """Return the progress, and the curves of losses and metrics as SVG."""
        from etude.preview.draw import svg

        wanted = {
            name: points
            for name, points in self.curves.items()
            if len(points) > 1 and (name == "train/loss" or name.startswith("val/"))
        }
        return self._progress() + svg(wanted, "")

    def _progress(self) -> str:
        spent = time.monotonic() - self._began
        if not self.total:
            return f"<div>step {self._step}, {duration(spent)}</div>"
        done = self._step - (self._first or 0)
        left = spent * (self.total - self._step) / done if done else 0.0
        bar = f'<progress value="{self._step}" max="{self.total}" style="width:24em"></progress>'
        return f"<div>{bar} step {self._step}/{self.total}, {duration(spent)}, {duration(left)} left</div>"
