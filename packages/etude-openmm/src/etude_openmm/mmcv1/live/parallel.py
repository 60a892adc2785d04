"""mmcv's model wrappers (MMDataParallel, MMDistributedDataParallel), DataContainer, collate and scatter.

On the CPU a wrapper only unpacks containers and passes ``train_step`` and ``val_step`` on to ``.module``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.data.dataloader import default_collate

from etude.dialects.properties import reads
from etude_openmm.shared.registries.registry_v1 import Registry
from etude_openmm.shared.state import add_registry, is_wrapper

MODULE_WRAPPERS = Registry("module wrapper", scope="mmcv")
add_registry(MODULE_WRAPPERS)


class DataContainer:
    """Holds a value of a sample that is not simply stacked: how to batch it, and whether it stays on the CPU."""

    def __init__(
        self,
        data: Any,
        stack: bool = False,
        padding_value: float = 0,
        cpu_only: bool = False,
        pad_dims: int | None = 2,
    ) -> None:
        if pad_dims not in (None, 1, 2, 3):
            raise AssertionError(f"pad_dims is None, 1, 2 or 3, got {pad_dims}")
        self._data, self._stack, self._padding_value = data, stack, padding_value
        self._cpu_only, self._pad_dims = cpu_only, pad_dims

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data!r})"

    def __len__(self) -> int:
        return len(self._data)

    data: Any = reads("_data")
    cpu_only: bool = reads("_cpu_only")
    stack: bool = reads("_stack")
    padding_value: float = reads("_padding_value")
    pad_dims: int | None = reads("_pad_dims")

    @property
    def datatype(self) -> Any:
        return self.data.type() if isinstance(self.data, Tensor) else type(self.data)

    def size(self, *args: Any) -> Any:
        return self.data.size(*args)

    def dim(self) -> int:
        return int(self.data.dim())


def collate(batch: Sequence[Any], samples_per_gpu: int = 1) -> Any:
    """Collate samples into a batch. :class:`DataContainer` values become one container with a list per device."""
    if not isinstance(batch, Sequence):
        raise TypeError(f"{type(batch).__name__} is not a sequence of samples")
    first = batch[0]
    if isinstance(first, DataContainer):
        return _collate_containers(batch, samples_per_gpu)
    if isinstance(first, Mapping):
        return {key: collate([sample[key] for sample in batch], samples_per_gpu) for key in first}
    if isinstance(first, Sequence) and not isinstance(first, str):
        return [collate(samples, samples_per_gpu) for samples in zip(*batch, strict=True)]
    return default_collate(list(batch))


def _collate_containers(batch: Sequence[DataContainer], samples_per_gpu: int) -> DataContainer:
    first = batch[0]
    groups = [batch[begin : begin + samples_per_gpu] for begin in range(0, len(batch), samples_per_gpu)]
    plain = [[sample.data for sample in group] for group in groups]
    if first.cpu_only:
        return DataContainer(plain, first.stack, first.padding_value, cpu_only=True)
    if not first.stack:
        return DataContainer(plain, first.stack, first.padding_value)
    if first.pad_dims is None:
        return DataContainer([default_collate(group) for group in plain], first.stack, first.padding_value)
    stacked = [_pad_and_stack(group, first.pad_dims, first.padding_value) for group in plain]
    return DataContainer(stacked, first.stack, first.padding_value)


def _pad_and_stack(tensors: Sequence[Tensor], dims: int, value: float) -> Tensor:
    """Stack tensors after padding the end of their last ``dims`` dimensions to the largest size."""
    shape = [max(tensor.size(-dim) for tensor in tensors) for dim in range(1, dims + 1)]
    padded = []
    for tensor in tensors:
        pad = [amount for dim, most in enumerate(shape, 1) for amount in (0, most - tensor.size(-dim))]
        padded.append(F.pad(tensor, pad, value=value))
    return torch.stack(padded)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """Return ``inputs`` for each device. ``[-1]`` is the CPU, where containers are only unpacked."""
    devices = [torch.device("cpu") if gpu in (-1, "cpu") else torch.device("cuda", gpu) for gpu in target_gpus]
    return _scatter(inputs, devices, dim)


def _scatter(value: Any, devices: list[torch.device], dim: int) -> list[Any]:
    if isinstance(value, Tensor):
        if devices == [torch.device("cpu")]:
            return [value]
        return [part.to(device) for part, device in zip(value.chunk(len(devices), dim), devices, strict=False)]
    if isinstance(value, DataContainer):
        if value.cpu_only:
            return list(value.data)
        return [_to(part, device) for part, device in zip(value.data, devices, strict=False)]
    if isinstance(value, tuple | list) and value:
        return [type(value)(part) for part in zip(*(_scatter(item, devices, dim) for item in value), strict=False)]
    if isinstance(value, dict) and value:
        spread = [_scatter(item, devices, dim) for item in value.values()]
        return [type(value)(zip(value, part, strict=True)) for part in zip(*spread, strict=False)]
    return [value for _ in devices]


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return [_to(item, device) for item in value] if isinstance(value, list) else value


def scatter_kwargs(inputs: Any, kwargs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple[Any, Any]:
    """Return positional and keyword arguments for each device, as two tuples of one length."""
    spread_inputs = scatter(inputs, target_gpus, dim) if inputs else []
    spread_kwargs = scatter(kwargs, target_gpus, dim) if kwargs else []
    while len(spread_inputs) < len(spread_kwargs):
        spread_inputs.append(())
    while len(spread_kwargs) < len(spread_inputs):
        spread_kwargs.append({})
    return tuple(spread_inputs), tuple(spread_kwargs)


#: The number of the CPU among those of CUDA devices.
_CPU = -1


def scatter_pieces(input: Any, devices: list[int], streams: Any = None) -> Any:
    """Copy a tensor to the first device, and consecutive parts of a list to one device each."""
    if isinstance(input, list):
        chunk = (len(input) - 1) // len(devices) + 1
        return [scatter_pieces(item, [devices[number // chunk]]) for number, item in enumerate(input)]
    if isinstance(input, Tensor):
        output = input.contiguous()
        return output if devices == [_CPU] else output.cuda(devices[0], non_blocking=True)
    raise TypeError(f"a tensor or a list of tensors is needed, got {type(input).__name__}")


def get_input_device(input: Any) -> int:
    """Return the number of the CUDA device of a tensor or list of tensors, or -1 for the CPU."""
    if isinstance(input, list):
        return next((device for device in map(get_input_device, input) if device != _CPU), _CPU)
    if isinstance(input, Tensor):
        return input.get_device() if input.is_cuda else _CPU
    raise TypeError(f"a tensor or a list of tensors is needed, got {type(input).__name__}")


class Scatter:
    """Moves inputs to devices. ``Scatter.forward`` returns a tuple."""

    @staticmethod
    def forward(target_gpus: list[int], input: Any) -> tuple[Any, ...]:
        output = scatter_pieces(input, target_gpus)
        return tuple(output) if isinstance(output, list) else (output,)


class _Steps:
    """Calls ``train_step`` and ``val_step`` of the wrapped model with the batch unpacked on its device."""

    module: Any
    dim: int
    device_ids: Any

    def _devices(self) -> list[Any]:
        return list(self.device_ids) if self.device_ids else [-1]

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> tuple[Any, Any]:
        return scatter_kwargs(inputs, kwargs, device_ids, dim=self.dim)

    def _unpacked(self, inputs: Any, kwargs: Any) -> tuple[Any, Any]:
        inputs, kwargs = self.scatter(inputs, kwargs, self._devices())
        return (inputs[0] if inputs else ()), (kwargs[0] if kwargs else {})

    def train_step(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._unpacked(inputs, kwargs)
        return self.module.train_step(*inputs, **kwargs)

    def val_step(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._unpacked(inputs, kwargs)
        return self.module.val_step(*inputs, **kwargs)


@MODULE_WRAPPERS.register_module()
class MMDataParallel(_Steps, DataParallel[Any]):
    """Runs the model in one process on one device, or on the CPU."""

    def __init__(self, *args: Any, dim: int = 0, **kwargs: Any) -> None:
        if not torch.cuda.is_available():
            kwargs.pop("device_ids", None)
        super().__init__(*args, **{**kwargs, "dim": dim})
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            inputs, kwargs = self._unpacked(inputs, kwargs)
            return self.module(*inputs, **kwargs)
        return super().forward(*inputs, **kwargs)


@MODULE_WRAPPERS.register_module()
class MMDistributedDataParallel(_Steps, DistributedDataParallel):
    """Runs the model with one process per device. Steps go through DDP's forward, so that gradients are averaged."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._unpacked(inputs, kwargs)
        return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]

    def train_step(self, *inputs: Any, **kwargs: Any) -> Any:
        return self._through_forward("train_step", inputs, kwargs)

    def val_step(self, *inputs: Any, **kwargs: Any) -> Any:
        return self._through_forward("val_step", inputs, kwargs)

    def _through_forward(self, name: str, inputs: Any, kwargs: Any) -> Any:
        """Call a step as if it were ``forward``, because DDP prepares the averaging of gradients there."""
        module, plain = self.module, self.module.forward

        def restore(*args: Any, **kw: Any) -> Any:
            module.forward = plain
            return getattr(module, name)(*args, **kw)

        module.forward = restore
        try:
            return self(*inputs, **kwargs)
        finally:
            module.forward = plain


def is_module_wrapper(module: nn.Module) -> bool:
    """Return whether ``module`` wraps a model, which is ``module.module``."""
    return is_wrapper(module)


def unwrap(model: nn.Module) -> Any:
    """Return the model without its wrapper."""
    return model.module if is_module_wrapper(model) else model


MODULE_WRAPPERS.register_module(module=DataParallel)
MODULE_WRAPPERS.register_module(module=DistributedDataParallel)
