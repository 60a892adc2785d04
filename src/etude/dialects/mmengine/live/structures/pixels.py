"""Maps over the pixels of a sample: every field is C × H × W with one H and W."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import torch

from etude.dialects.mmengine.live.structures.element import _PRIVATE, BaseDataElement


class PixelData(BaseDataElement):
    """Pixel-level annotations or predictions, sliced together: ``pixels[10:20, 5]``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _PRIVATE:
            assert isinstance(value, (torch.Tensor, np.ndarray)), f"Can not set {type(value)}: only tensors and arrays"
            assert value.ndim in (2, 3), f"The dim of value must be 2 or 3, but got {value.ndim}"
            if self.shape:
                assert tuple(value.shape[-2:]) == self.shape, (
                    f"The height and width of values {tuple(value.shape[-2:])} is not consistent with the shape of "
                    f"this :obj:`PixelData` {self.shape}"
                )
            if value.ndim == 2:
                warnings.warn(
                    f"The shape of value will convert from {tuple(value.shape)} to {(1, *value.shape)}: {name} is made "
                    "3-dimensional",
                    stacklevel=2,
                )
                value = value[None]
        super().__setattr__(name, value)

    def __getitem__(self, item: tuple[int | slice, int | slice]) -> Self:
        """A window: heights and widths, each a number or a slice."""
        if not isinstance(item, tuple):
            raise TypeError(f"Unsupported type {type(item)} for slicing PixelData")
        assert len(item) == 2, "Only support to slice height and width"
        window = (slice(None), *(_slice(one, size) for one, size in zip(item, self.shape or (0, 0), strict=True)))
        made = type(self)(metainfo=self.metainfo)
        made.set_data({name: value[window] for name, value in self.items()})
        return made

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Height and width, None as long as there is no field."""
        return tuple(self.values()[0].shape[-2:]) if len(self._data_fields) else None


def _slice(item: int | slice, size: int) -> slice:
    if isinstance(item, slice):
        return item
    if isinstance(item, int):
        return slice(item, None, size)
    raise TypeError(f"The type of element in input must be int or slice, but got {type(item)}")
