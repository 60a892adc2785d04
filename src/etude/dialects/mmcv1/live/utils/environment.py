"""Versions and settings of the process that train scripts ask for."""

from __future__ import annotations

import os
import platform
import time
import warnings
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.utils.data import DataLoader

from etude.dialects.openmm import torch_utils
from etude.dialects.openmm.live.checkpoint_v1 import MMCV_VERSION

__all__ = [
    "IS_CUDA_AVAILABLE", "MMCLS_VERSION", "MMCV_VERSION", "MMTRACK_VERSION", "TORCH_VERSION", "DataLoader",
    "SyncBatchNorm", "_BatchNorm", "_ConvNd", "_InstanceNorm", "collect_env", "get_time_str", "is_cuda_available",
    "setup_multi_processes",
]  # fmt: skip

#: The versions whose behaviour is followed.
MMCLS_VERSION = "0.25.0"
MMTRACK_VERSION = "0.14.0"
TORCH_VERSION = torch.__version__
IS_CUDA_AVAILABLE = torch.cuda.is_available()
SyncBatchNorm = torch.nn.SyncBatchNorm


def is_cuda_available() -> bool:
    return torch.cuda.is_available()


def get_time_str() -> str:
    return time.strftime("%Y%m%d_%H%M%S", time.localtime())


def collect_env() -> dict[str, Any]:
    """Versions of what matters to a run, as mmcv tells them; nothing from the environment's variables."""
    known = torch_utils.collect_env()
    left_out = ("MMEngine", "MUSA available", "numpy_random_seed")
    return {
        **{key: value for key, value in known.items() if key not in left_out},
        "MMCV": f"{MMCV_VERSION}, served by etude",
        "MMCV Compiler": "n/a",
        "MMCV CUDA Compiler": "n/a",
    }


def setup_multi_processes(cfg: Any) -> None:
    """Set how workers start, and one thread for each of them when there are several."""
    method = cfg.get("mp_start_method", "fork")
    if platform.system() != "Windows" and torch.multiprocessing.get_start_method(allow_none=True) not in (None, method):
        warnings.warn(f"multi-processing start method is set to {method}", stacklevel=2)
    if platform.system() != "Windows":
        torch.multiprocessing.set_start_method(method, force=True)
    workers = cfg.get("data", {}).get("workers_per_gpu", 0)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if name not in os.environ and workers > 1:
            os.environ[name] = "1"
