"""Keeps the recent course of every value in memory, for plots in notebooks."""

from __future__ import annotations

from etude.events.record import Record

#: Points per value; beyond that every second one is forgotten.
MOST = 2000


class History:
    """A writer whose ``curves`` hold ``(step, value)`` pairs by ``split/name``."""

    def __init__(self) -> None:
        self.curves: dict[str, list[tuple[float, float]]] = {}

    def write(self, record: Record) -> None:
        for name, value in record.values.items():
            points = self.curves.setdefault(f"{record.split}/{name}", [])
            points.append((float(record.step), value))
            if len(points) > MOST:
                del points[1:-1:2]

    def close(self) -> None: ...


class LiveCurves(History):
    """Shows loss and metrics as a picture that is renewed while a notebook cell trains, at most once a second."""

    def __init__(self) -> None:
        super().__init__()
        self._shown = float("-inf")
        self._handle: object | None = None

    def write(self, record: Record) -> None:
        super().write(record)
        self._show(force=False)

    def close(self) -> None:
        self._show(force=True)

    def _show(self, *, force: bool) -> None:
        import time

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
        """Return the curves of losses and metrics as SVG."""
        from etude.preview.draw import svg

        wanted = {
            name: points
            for name, points in self.curves.items()
            if len(points) > 1 and (name == "train/loss" or name.startswith("val/"))
        }
        return svg(wanted, "")
