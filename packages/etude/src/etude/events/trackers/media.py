"""Keeps images and texts as files in the run's folder, where the report finds them."""

from __future__ import annotations

import re
from pathlib import Path

from etude.errors import MissingExtra
from etude.events.record import Record
from etude.events.trackers.service import as_picture


class Media:
    """``media/NAME-STEP.png`` and ``.txt``; of each name the last ``keep`` stay."""

    def __init__(self, folder: str | Path, keep: int = 20) -> None:
        self.folder, self.keep = Path(folder) / "media", keep
        try:
            from PIL import Image
        except ImportError:
            raise MissingExtra("pillow", "image", "keeping images") from None
        self._image = Image

    def write(self, record: Record) -> None:
        for kind, name, value in record.media:
            safe = re.sub(r"[^\w.+-]+", "-", name).strip("-.")[:100] or kind
            if kind == "image":
                self._save(safe, record.step, value)
            elif kind == "text":
                self.folder.mkdir(exist_ok=True)
                (self.folder / f"{safe}-{record.step:09}.txt").write_text(str(value), encoding="utf-8")

    def close(self) -> None: ...

    def _save(self, name: str, step: int, value: object) -> None:
        self.folder.mkdir(exist_ok=True)
        self._image.fromarray(as_picture(value)).save(self.folder / f"{name}-{step:09}.png")
        for old in sorted(self.folder.glob(f"{name}-{'[0-9]' * 9}.png"))[: -self.keep]:
            old.unlink(missing_ok=True)
