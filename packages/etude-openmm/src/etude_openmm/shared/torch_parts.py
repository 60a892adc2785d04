"""The parts of torch that mmcv and MMEngine offer under names of their own, once for Parrots and once for torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd
from torch.utils.data import DataLoader

SyncBatchNorm_ = nn.SyncBatchNorm
PoolDataLoader = DataLoader


def get_build_config() -> str:
    """Return how torch was built."""
    return torch.__config__.show()


def _get_cuda_home() -> str | None:
    """Return the folder of CUDA, or of ROCm; None if there is none."""
    from torch.utils import cpp_extension

    home = cpp_extension.ROCM_HOME if torch.version.hip is not None else cpp_extension.CUDA_HOME
    return str(home) if home else None


def _get_extension() -> tuple[Any, Any, Any]:
    from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

    return BuildExtension, CppExtension, CUDAExtension


def _get_conv() -> tuple[Any, Any]:
    return _ConvNd, _ConvTransposeNd


def _get_dataloader() -> tuple[Any, Any]:
    return DataLoader, PoolDataLoader


def _get_pool() -> tuple[Any, ...]:
    return _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd


def _get_norm() -> tuple[Any, ...]:
    return _BatchNorm, _InstanceNorm, SyncBatchNorm_
