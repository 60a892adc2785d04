"""Restores names and behaviour of older numpy and torch that mmcv and its projects need."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from torch.utils.data import Sampler

from etude_openmm.shared import old_numpy


def restore(module: ModuleType) -> None:
    """Restore the names. ``module`` is ``mmcv.ops``, which every project that needs them imports."""
    # torch has dropped Sampler(dataset). MMTracking 0.14 and MMDetection 2.28 use it, and dropped names of numpy.
    old_numpy.restore()
    if "__init__" not in vars(Sampler):
        setattr(Sampler, "__init__", _init_with_dataset)  # noqa: B010  mypy refuses the assignment


def restore_for_images(module: ModuleType) -> None:
    """Let ``mmcv.image.photometric`` shift hues by negative amounts, and restore names of numpy for MMEngine."""
    old_numpy.restore()
    shift = vars(module)["adjust_hue"]

    @functools.wraps(shift)
    def adjust_hue(img: Any, hue_factor: float, *args: Any, **kwargs: Any) -> Any:
        return shift(img, Hue(hue_factor), *args, **kwargs)

    vars(module)["adjust_hue"] = adjust_hue


class Hue(float):
    """A hue factor that wraps. mmcv computes ``np.uint8(hue * 255)``: numpy 1 wrapped negatives, numpy 2 raises."""

    def __mul__(self, other: float) -> int:
        return int(float(self) * other) % 256


def _init_with_dataset(self: Any, *args: Any, **kwargs: Any) -> None:
    """Accept the dataset, as ``Sampler`` did, and pass it on if another base class takes arguments."""
    following = super(Sampler, self).__init__
    if getattr(following, "__qualname__", "") == "object.__init__":
        following()
    else:
        following(*args, **kwargs)
