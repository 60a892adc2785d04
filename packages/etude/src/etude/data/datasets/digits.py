"""The handwritten digits that come with the package.

1,797 images of 8×8 pixels with values from 0 to 16, from the *Optical Recognition of Handwritten Digits* data set by
E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licensed under
CC BY 4.0; this is the part that scikit-learn distributes as ``load_digits``, stored as 8-bit integers.
"""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import torch

from etude.data.datasets.tensors import TensorData
from etude.errors import ConfigError
from etude.errors.spelling import suggest

_TRAIN_SHARE = 0.8


class Digits(TensorData):
    """The digits: float32 in [0, 1] of shape (64,), or (1, 8, 8) with ``flat=False``, and the label as int64.

    ``split`` is ``train`` (1,437 images), ``val`` (360) or ``all``. The split is shuffled once and for all, because the
    writers of the file's beginning and end differ.
    """

    classes = 10

    def __init__(self, split: str = "train", flat: bool = True) -> None:
        with np.load(str(files("etude.data.datasets").joinpath("digits.npz"))) as stored:
            images, labels = stored["images"], stored["labels"]
        chosen = _split(split, len(labels))
        pixels = torch.from_numpy(images[chosen].astype(np.float32) / 16.0)
        self.split = split
        super().__init__(
            pixels if flat else pixels.view(-1, 1, 8, 8), torch.from_numpy(labels[chosen].astype(np.int64))
        )


def _split(split: str, size: int) -> np.ndarray:
    # numpy has frozen RandomState: this is the same split in every release.
    order = np.random.RandomState(0).permutation(size)
    border = int(size * _TRAIN_SHARE)
    parts = {"train": order[:border], "val": order[border:], "all": np.arange(size)}
    if split not in parts:
        raise ConfigError(f"Digits: no split is called {split!r}", hint=suggest(split, parts))
    return parts[split]
