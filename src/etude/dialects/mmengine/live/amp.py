"""The autocast that fits the device."""

from __future__ import annotations

from typing import Any

import torch

_HALF = {"cuda": torch.float16, "npu": torch.float16, "mlu": torch.float16, "musa": torch.float16}


def autocast(
    device_type: str | None = None,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> Any:
    """``torch.autocast`` with the dtype that the device is good at: half on accelerators, bfloat16 on the CPU."""
    device_type = device_type or default_device()
    if device_type not in (*_HALF, "cpu", "mps", "xpu"):
        raise ValueError(f"autocast does not know the device type {device_type!r}")
    dtype = dtype or _HALF.get(device_type, torch.bfloat16)
    if device_type == "cpu" and dtype not in (torch.bfloat16, torch.float16):
        enabled = False
    return torch.autocast(device_type=device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def default_device() -> str:
    """The kind of device that models are moved to on this machine."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
