"""Reads images in folders, one folder per class, through Pillow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from etude.data.datasets.csv import require_classes
from etude.data.datasets.missing import not_there
from etude.data.fingerprint import checksum_of_files
from etude.errors import MissingExtra

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})


class ImageFolder:
    """``folder/<class>/<name>.png``: classes are numbered by the sorted names of their folders, or as in ``classes``.

    A sample is float32 in [0, 1] of shape (channels, height, width) and its label. ``size`` resizes: a number for
    squares, or (height, width). ``mode`` is Pillow's: ``RGB``, ``L`` … ``transform`` gets and gives the image tensor;
    what it draws at random depends on the seed, the epoch and the sample.
    """

    def __init__(
        self,
        folder: str,
        size: int | tuple[int, int] | None = None,
        mode: str = "RGB",
        transform: Callable[[Tensor], Any] | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        root = Path(folder).expanduser()
        if not root.is_dir():
            raise not_there("ImageFolder", folder, "folder")
        there = sorted(entry.name for entry in root.iterdir() if entry.is_dir())
        self.classes = there if classes is None else list(classes)
        require_classes(there, self.classes, folder)
        self.samples = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((root / name).rglob("*"))
            if path.suffix.lower() in SUFFIXES
        ]
        self.size = (size, size) if isinstance(size, int) else tuple(size) if size else None
        self.mode, self.transform = mode, transform
        self.deterministic = transform is None
        self._root = root

    @property
    def shared(self) -> dict[str, Any]:
        """Return what other data of the same run has to agree with: a folder without a class must not renumber the
        rest.
        """
        return {"classes": self.classes}

    def fingerprint(self) -> str:
        """Return a checksum of names, sizes and content of the images; of large folders, only a part of the content."""
        return checksum_of_files([path for path, _ in self.samples], root=self._root)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self.samples[index]
        image = read_image(path, mode=self.mode, size=self.size)
        return (image if self.transform is None else self.transform(image)), label


class Pictures:
    """Every image in ``folder`` (or the one at that path), without labels, in the order of their names."""

    def __init__(
        self,
        folder: str,
        size: int | tuple[int, int] | None = None,
        mode: str = "RGB",
        transform: Callable[[Tensor], Any] | None = None,
    ) -> None:
        #: Names of the classes that a model knows, for its answers.
        self.classes: list[str] = []
        root = Path(folder).expanduser()
        found = sorted(root.rglob("*")) if root.is_dir() else [root]
        self.paths = [path for path in found if path.suffix.lower() in SUFFIXES]
        self.size = (size, size) if isinstance(size, int) else tuple(size) if size else None
        self.mode, self.transform = mode, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        image = read_image(self.paths[index], mode=self.mode, size=self.size)
        return image if self.transform is None else self.transform(image)


def read_image(path: Path | str | BinaryIO, *, mode: str = "RGB", size: tuple[int, ...] | None = None) -> Tensor:
    """Return an image as float32 in [0, 1], channels first."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("pillow", "image", "reading pictures") from None
    with Image.open(path) as picture:
        image = picture.convert(mode)
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.float32) / 255.0
    return torch.from_numpy(np.atleast_3d(pixels).transpose(2, 0, 1).copy())
