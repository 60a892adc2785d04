"""Keeps the images, histograms, tables and texts that a run records, as files in its folder."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.events.record import Record

#: The bars of a histogram.
_BARS = 48
#: The modes of PNG by the number of channels.
_PNG = {1: 0, 2: 4, 3: 2, 4: 6}
_FILE = re.compile(r"(.+)-(\d{9})\.(png|txt|hist\.json|table\.json)")
_KINDS = {"png": "image", "txt": "text", "hist.json": "histogram", "table.json": "table"}


class Media:
    """``media/NAME-STEP.png``, ``.txt``, ``.hist.json`` and ``.table.json``; of each name the last ``keep`` stay."""

    def __init__(self, folder: str | Path, keep: int = 20) -> None:
        self.folder, self.keep = Path(folder) / "media", keep

    def write(self, record: Record) -> None:
        for kind, name, value in record.media:
            safe = re.sub(r"[^\w.+-]+", "-", name).strip("-.")[:100] or kind
            if kind == "image":
                self._save(safe, record.step, "png", png(as_picture(value)))
            elif kind == "histogram":
                self._save(safe, record.step, "hist.json", json.dumps(bars(value)).encode())
            elif kind == "table":
                self._save(safe, record.step, "table.json", str(value).encode())
            elif kind == "text":
                self._save(safe, record.step, "txt", str(value).encode("utf-8", "replace"))

    def close(self) -> None: ...

    def _save(self, name: str, step: int, ending: str, content: bytes) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{name}-{step:09}.{ending}").write_bytes(content)
        for old in sorted(self.folder.glob(f"{name}-{'[0-9]' * 9}.{ending}"))[: -self.keep]:
            old.unlink(missing_ok=True)


def as_array(value: Any) -> Any:
    """Return a tensor or nested list as a numpy array."""
    import numpy as np

    return value.detach().float().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def as_picture(value: Any) -> Any:
    """Return an image as bytes, H × W or H × W × C, from floats of 0 to 1 or bytes in either order of channels."""
    array = value.detach().cpu().numpy() if hasattr(value, "detach") else as_array(value)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.dtype.kind == "f":
        array = (array.clip(0, 1) * 255).round()
    array = array.astype("uint8")
    return array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array


def png(picture: Any) -> bytes:
    """Return a picture of bytes, H × W or H × W × C, in the format PNG."""
    height, width = picture.shape[:2]
    channels = 1 if picture.ndim == 2 else picture.shape[2]
    # Each row begins with the number of its filter: none.
    rows = b"".join(b"\0" + row.tobytes() for row in picture.reshape(height, width * channels))
    head = struct.pack(">IIBBBBB", width, height, 8, _PNG[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def bars(value: Any) -> dict[str, Any]:
    """Return a histogram of the finite values, and how many others there are."""
    import numpy as np

    values = as_array(value).astype("float64").ravel()
    finite = values[np.isfinite(values)]
    counts, edges = np.histogram(finite, bins=min(_BARS, max(1, finite.size)))
    return {"counts": counts.tolist(), "edges": edges.tolist(), "strange": int(values.size - finite.size)}


def table_text(value: Any) -> str:
    """Return a table as JSON: from rows that are mappings, from columns, or from a data frame.

    >>> table_text([{"word": "a", "n": 1}, {"word": "b", "n": 2}])
    '{"columns": ["word", "n"], "rows": [["a", 1], ["b", 2]]}'
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict("list")
    if isinstance(value, Mapping):
        columns = list(value)
        rows: list[Any] = [list(row) for row in zip(*value.values(), strict=True)]
    else:
        columns = list(dict.fromkeys(key for row in value for key in row))
        rows = [[row.get(key) for key in columns] for row in value]
    return json.dumps({"columns": list(map(str, columns)), "rows": [[_cell(cell) for cell in row] for row in rows]})


def _cell(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if isinstance(value, float) and value - value != 0:  # NaN and the infinities, which JSON does not know
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def media_files(folder: Path) -> Sequence[tuple[str, str, int, Path]]:
    """Return kind, name, step and file of everything that is kept in a run's folder, by name and step."""
    found = []
    for path in (folder / "media").glob("*-*.*"):
        parts = _FILE.fullmatch(path.name)
        if parts is not None:
            found.append((_KINDS[parts[3]], parts[1], int(parts[2]), path))
    return sorted(found, key=lambda one: one[:3])
