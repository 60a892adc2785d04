"""Records for TensorBoard: scalars, images, histograms and texts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.errors import MissingExtra
from etude.events.record import Record
from etude.events.trackers.tracker import as_array, as_picture


class TensorBoard:
    """Event files in ``folder/tensorboard``. A value ``loss`` of the split ``val`` is shown as ``val/loss``."""

    package = "tensorboard"

    def __init__(self, folder: str | Path, name: str = "tensorboard") -> None:
        self.folder = Path(folder) / name
        self._step = 0
        self._board = _open(self.folder)

    def write(self, record: Record) -> None:
        self._step = max(self._step, record.step)
        for name, value in record.values.items():
            self._board.add_scalar(f"{record.split}/{name}", value, record.step, walltime=record.time)
        for kind, name, value in record.media:
            self._add(kind, name, value, record.step)
        self._board.flush()

    def close(self) -> None:
        self._board.close()

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin a new file that hides what was written after the checkpoint."""
        self._step = int(state["step"])
        self._board.close()
        self._board = _open(self.folder, purge_step=self._step + 1)

    def _add(self, kind: str, name: str, value: Any, step: int) -> None:
        if kind == "image":
            picture = as_picture(value)
            self._board.add_image(name, picture, step, dataformats="HWC" if picture.ndim == 3 else "HW")
        elif kind == "histogram":
            self._board.add_histogram(name, as_array(value), step)
        elif kind == "text":
            self._board.add_text(name, str(value), step)


def _open(folder: Path, purge_step: int | None = None) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra("tensorboard", "tracking", "writing for TensorBoard") from None
    return SummaryWriter(str(folder), purge_step=purge_step)
