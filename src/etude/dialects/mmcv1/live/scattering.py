"""Moving inputs to devices, piece by piece: ``mmcv.parallel._functions``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

#: The number that stands for the CPU among those of CUDA devices.
CPU = -1


def scatter(input: Any, devices: list[int], streams: Any = None) -> Any:
    """A tensor on the first device; of a list, each consecutive part on a device of its own."""
    if isinstance(input, list):
        chunk = (len(input) - 1) // len(devices) + 1
        return [scatter(item, [devices[number // chunk]]) for number, item in enumerate(input)]
    if isinstance(input, Tensor):
        output = input.contiguous()
        return output if devices == [CPU] else output.cuda(devices[0], non_blocking=True)
    raise TypeError(f"a tensor or a list of tensors is needed, got {type(input).__name__}")


def get_input_device(input: Any) -> int:
    """The number of the CUDA device that something lies on, or -1."""
    if isinstance(input, list):
        return next((device for device in map(get_input_device, input) if device != CPU), CPU)
    if isinstance(input, Tensor):
        return input.get_device() if input.is_cuda else CPU
    raise TypeError(f"a tensor or a list of tensors is needed, got {type(input).__name__}")


class Scatter:
    """``Scatter.forward``: everything on its device, as a tuple."""

    @staticmethod
    def forward(target_gpus: list[int], input: Any) -> tuple[Any, ...]:
        output = scatter(input, target_gpus)
        return tuple(output) if isinstance(output, list) else (output,)
