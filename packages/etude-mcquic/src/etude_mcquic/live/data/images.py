"""Datasets of images in a folder or an LMDB."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.errors import ConfigError, DataError, MissingExtra
from etude_mcquic.live.data.transforms import Compose, Normalize, ToFloat
from etude_mcquic.lower import near_path

Transform = Callable[[Tensor], Tensor]
#: The default transform: the whole image, scaled to [-1, 1].
whole: Transform = Compose([ToFloat(), Normalize()])
ENDINGS = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".ppm", ".tif", ".tiff"}


class Folder:
    """All images below a folder, in the order of their paths."""

    def __init__(self, root: str | Path, *, transform: Transform = whole, repeat: int = 1) -> None:
        self.root, self.transform, self.repeat = Path(root), transform, repeat
        if not self.root.is_dir():
            raise ConfigError(f"there is no folder of images {root}", hint=near_path(root))
        self.paths = sorted(path for path in self.root.rglob("*") if path.suffix.lower() in ENDINGS)
        if not self.paths:
            raise ConfigError(f"{root} holds no images", hint=f"endings that are known: {' '.join(sorted(ENDINGS))}")
        self._cache: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.paths) * self.repeat

    def __getitem__(self, index: int) -> Tensor:
        number = index % len(self.paths)
        if number not in self._cache:
            image = decode(self.paths[number].read_bytes(), str(self.paths[number]))
            if len(self.paths) > 256:
                return self.transform(image)
            self._cache[number] = image
        return self.transform(self._cache[number])


class Lmdb:
    """Encoded images in an LMDB, one per key."""

    def __init__(self, root: str | Path, *, transform: Transform = whole, repeat: int = 1) -> None:
        self.root, self.transform, self.repeat = str(root), transform, repeat
        with _open(self.root).begin() as transaction:
            self.keys = [bytes(key) for key, _ in transaction.cursor()]
        if not self.keys:
            raise ConfigError(f"the LMDB {root} is empty")

    def __len__(self) -> int:
        return len(self.keys) * self.repeat

    def __getitem__(self, index: int) -> Tensor:
        key = self.keys[index % len(self.keys)]
        with _open(self.root).begin() as transaction:
            return self.transform(decode(transaction.get(key), repr(key)))


def open_images(path: str | Path, *, transform: Transform = whole, repeat: int = 1) -> Folder | Lmdb:
    """Open a folder of images, or an LMDB (a folder with ``data.mdb``, or a file)."""
    place = Path(path)
    if (place / "data.mdb").exists() or place.is_file():
        return Lmdb(place, transform=transform, repeat=repeat)
    return Folder(place, transform=transform, repeat=repeat)


def to_bytes(image: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor in [-1, 1] (3×H×W) as H×W×3 bytes."""
    scaled = ((image.detach().cpu().float() + 1) * 127.5).round().clamp(0, 255)
    return scaled.to(torch.uint8).permute(1, 2, 0).numpy()


def pad(image: Tensor, multiple: int) -> Tensor:
    """Pad height and width to a multiple by repeating the border."""
    height, width = image.shape[-2:]
    amounts = (0, -width % multiple, 0, -height % multiple)
    batch = image if image.ndim == 4 else image.unsqueeze(0)
    padded = torch.nn.functional.pad(batch, amounts, mode="replicate")
    return padded if image.ndim == 4 else padded[0]


def decode(data: bytes, name: str) -> Tensor:
    """Return the bytes of an encoded picture (3×H×W)."""
    try:
        with _pillow().open(io.BytesIO(data)) as picture:
            values = np.asarray(picture.convert("RGB"))
    except OSError as error:
        raise DataError(f"{name} is not an image that can be read: {error}") from error
    return torch.from_numpy(values.copy()).permute(2, 0, 1)


#: (process, path) → the open LMDB. A process may open one only once, and a child process may not use its parent's.
_opened: dict[tuple[int, str], Any] = {}


def _open(root: str) -> Any:
    try:
        import lmdb
    except ImportError as error:
        raise MissingExtra("lmdb", "mcquic", "reading a training set from an LMDB") from error
    owned = (os.getpid(), os.path.abspath(root))
    if owned not in _opened:
        try:
            _opened[owned] = lmdb.open(root, readonly=True, lock=False, subdir=Path(root).is_dir())
        except lmdb.Error as error:
            raise ConfigError(f"{root} is neither a folder of images nor an LMDB: {error}") from error
    return _opened[owned]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("pillow", "mcquic", "reading images") from error
    return Image
