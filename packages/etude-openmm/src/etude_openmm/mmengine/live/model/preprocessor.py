"""Data preprocessors: move a batch to the device, convert to float, normalise and pad images to one size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from mmengine.model.utils import stack_batch
from torch import Tensor, nn

from etude_openmm.mmengine.live.collate import is_element
from etude_openmm.shared.registries.root import MODELS


@MODELS.register_module()
class BaseDataPreprocessor(nn.Module):
    """Moves tensors and data elements, through dicts and sequences, to the model's device."""

    def __init__(self, non_blocking: bool | None = False) -> None:
        super().__init__()
        self._non_blocking = bool(non_blocking)
        self._device = torch.device("cpu")

    def cast_data(self, data: Any) -> Any:
        """Return ``data`` with tensors and data elements moved to this module's device."""
        if isinstance(data, Tensor) and data.device == self._device:  # the usual case first: this is called per sample
            return data
        if type(data) in (list, tuple):
            return type(data)([self.cast_data(item) for item in data])
        if isinstance(data, Tensor) or is_element(data):
            return data.to(self._device, non_blocking=self._non_blocking)
        if isinstance(data, Mapping):
            return {key: self.cast_data(value) for key, value in data.items()}
        if data is None or isinstance(data, (str, bytes)):
            return data
        if isinstance(data, tuple) and hasattr(data, "_fields"):
            return type(data)(*(self.cast_data(item) for item in data))
        if isinstance(data, Sequence):
            return type(data)([self.cast_data(item) for item in data])  # type: ignore[call-arg]
        return data

    def forward(self, data: Any, training: bool = False) -> Any:
        return self.cast_data(data)

    @property
    def device(self) -> torch.device:
        """Return the device that data goes to."""
        return self._device

    def to(self, *args: Any, **kwargs: Any) -> Self:
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
        if device is not None:
            self._device = torch.device(device)
        return super().to(*args, **kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> Self:
        self._device = torch.device(torch.cuda.current_device())
        return super().cuda()

    def cpu(self, *args: Any, **kwargs: Any) -> Self:
        self._device = torch.device("cpu")
        return super().cpu()


@MODELS.register_module()
class ImgDataPreprocessor(BaseDataPreprocessor):
    """Makes one tensor of ``inputs``, a list of C × H × W or N × C × H × W: flip channels, to float, normalise, pad.

    Padding is to the right and at the bottom, to the largest size rounded up to ``pad_size_divisor``.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Sequence[float | int] | None = None,
        std: Sequence[float | int] | None = None,
        pad_size_divisor: int = 1,
        pad_value: float | int = 0,
        bgr_to_rgb: bool = False,
        rgb_to_bgr: bool = False,
        non_blocking: bool | None = False,
    ) -> None:
        super().__init__(non_blocking)
        assert not (bgr_to_rgb and rgb_to_bgr), "`bgr2rgb` and `rgb2bgr` cannot be set to True at the same time"
        assert (mean is None) == (std is None), "mean and std should be both None or tuple"
        self._enable_normalize = mean is not None
        if mean is not None and std is not None:
            for name, values in (("mean", mean), ("std", std)):
                assert len(values) in (1, 3), f"`{name}` should have 1 or 3 values, but got {len(values)} values"
                # Not persistent: it is no part of a state_dict.
                self.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(-1, 1, 1), False)
        self._channel_conversion = rgb_to_bgr or bgr_to_rgb
        self.pad_size_divisor, self.pad_value = pad_size_divisor, pad_value

    def forward(self, data: dict[str, Any], training: bool = False) -> Any:
        data = self.cast_data(data)
        inputs = data["inputs"]
        if isinstance(inputs, Tensor):
            assert inputs.dim() == 4, (
                "The input of `ImgDataPreprocessor` should be a NCHW tensor or a list of tensor, "
                f"but got a tensor with shape: {tuple(inputs.shape)}"
            )
            data["inputs"] = self._padded(self._normalised(inputs, channels=1))
        elif isinstance(inputs, (list, tuple)) and all(isinstance(image, Tensor) for image in inputs):
            images = [self._normalised(image, channels=0) for image in inputs]
            data["inputs"] = stack_batch(images, self.pad_size_divisor, self.pad_value)
        else:
            raise TypeError(
                "Output of `cast_data` should be a dict of list/tuple with inputs and data_samples, "
                f"but got {type(inputs)}"
            )
        data.setdefault("data_samples", None)
        return data

    def _normalised(self, image: Tensor, *, channels: int) -> Tensor:
        """Return ``image`` as normalised floats. ``channels`` is the channel dimension."""
        if self._channel_conversion:
            assert image.shape[channels] == 3, f"three channels can be turned around, not {image.shape[channels]}"
            image = image.flip(channels)
        image = image.float()
        if not self._enable_normalize:
            return image
        if self.mean.shape[0] == 3:
            assert image.dim() == channels + 3 and image.shape[channels] == 3, (
                f"If the mean has 3 values, images should have 3 channels, but got {tuple(image.shape)}"
            )
        return (image - self.mean) / self.std

    def _padded(self, images: Tensor) -> Tensor:
        height, width = images.shape[2:]
        right, bottom = (-size % self.pad_size_divisor for size in (width, height))
        return F.pad(images, (0, right, 0, bottom), "constant", self.pad_value) if right or bottom else images
