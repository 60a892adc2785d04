"""The wrappers for other devices than CUDA that projects import from ``mmcv.device``."""

from __future__ import annotations

from typing import Any

from torch import nn

from etude_openmm.mmcv1.live.parallel import MMDataParallel, MMDistributedDataParallel
from etude_openmm.shared.errors import ConfigValueError


def _refuse(device: str) -> None:
    raise ConfigValueError(f"no batches are moved to a device of type {device}: Étude knows the CPU and CUDA")


class MPSDataParallel(MMDataParallel):
    """Refuses a model on Apple's devices."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        _refuse("mps")


class MLUDataParallel(MMDataParallel):
    """Refuses a model on Cambricon's devices."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        _refuse("mlu")


class MLUDistributedDataParallel(MMDistributedDataParallel):
    """Refuses a model on Cambricon's devices."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        _refuse("mlu")


class NPUDataParallel(MMDataParallel):
    """Refuses a model on Huawei's devices."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        _refuse("npu")


class NPUDistributedDataParallel(MMDistributedDataParallel):
    """Refuses a model on Huawei's devices."""

    def __init__(self, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        _refuse("npu")
