"""The autocast that fits the device."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from etude.dialects.mmengine.live.device import get_device

_HALF = {"cuda": torch.float16, "npu": torch.float16, "mlu": torch.float16, "musa": torch.float16}


def autocast(
    device_type: str | None = None,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> Any:
    """``torch.autocast`` with the dtype that the device is good at: half on accelerators, bfloat16 on the CPU."""
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
    """The kind of device that models are moved to on this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
