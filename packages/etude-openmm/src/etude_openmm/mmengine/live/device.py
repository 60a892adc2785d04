"""Finds the available accelerator, and an autocast context for it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch


def is_cuda_available() -> bool:
    return torch.cuda.is_available()


def is_mps_available() -> bool:
    return torch.backends.mps.is_available()


def _has(name: str) -> bool:
    """Return whether an extension of torch provides a device of that name, and it is available."""
    module = getattr(torch, name, None)
    return module is not None and bool(module.is_available())


def is_npu_available() -> bool:
    return _has("npu")


def is_mlu_available() -> bool:
    return _has("mlu")


def is_musa_available() -> bool:
    return _has("musa")


def is_dipu_available() -> bool:
    return False


def is_npu_support_full_precision() -> bool:
    return False


def get_max_cuda_memory(device: torch.device | None = None) -> int:
    """Return the peak memory in MB since the last call."""
    peak = int(torch.cuda.max_memory_allocated(device)) // (1024 * 1024)
    torch.cuda.reset_peak_memory_stats(device)
    return peak


get_max_musa_memory = get_max_cuda_memory


def get_device() -> str:
    """Return the name of the best device on this machine, in MMEngine's order of preference."""
    kinds = (
        ("npu", is_npu_available), ("cuda", is_cuda_available), ("mlu", is_mlu_available),
        ("mps", is_mps_available), ("musa", is_musa_available),
    )  # fmt: skip
    return next((name for name, available in kinds if available()), "cpu")


_HALF = {"cuda": torch.float16, "npu": torch.float16, "mlu": torch.float16, "musa": torch.float16}


def autocast(
    device_type: str | None = None,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> Any:
    """Return ``torch.autocast``. The default dtype is float16 on accelerators and bfloat16 on the CPU."""
    device_type = device_type or get_device()
    if enabled and device_type not in (*_HALF, "cpu", "xpu"):
        raise ValueError(f"User specified autocast device_type must be cuda or cpu, but got {device_type}")
    dtype = dtype or _HALF.get(device_type, torch.bfloat16)
    if device_type == "cpu" and dtype not in (torch.bfloat16, torch.float16):
        enabled = False
    if device_type not in (*_HALF, "cpu", "xpu"):
        return nullcontext()
    return torch.autocast(device_type=device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def default_device() -> str:
    """Return the type of device that models are moved to on this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
