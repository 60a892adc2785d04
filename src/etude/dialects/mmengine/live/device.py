"""Finds the accelerator."""

from __future__ import annotations

import torch


def is_cuda_available() -> bool:
    return torch.cuda.is_available()


def is_mps_available() -> bool:
    return torch.backends.mps.is_available()


def _has(name: str) -> bool:
    """Return whether torch was extended by a device of that name and it is there."""
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
    """The peak of the memory in MB since the last call."""
    peak = int(torch.cuda.max_memory_allocated(device)) // (1024 * 1024)
    torch.cuda.reset_peak_memory_stats(device)
    return peak


get_max_musa_memory = get_max_cuda_memory


def get_device() -> str:
    """The name of the best device there is."""
    kinds = (
        ("npu", is_npu_available), ("cuda", is_cuda_available), ("mlu", is_mlu_available),
        ("mps", is_mps_available), ("musa", is_musa_available),
    )  # fmt: skip
    return next((name for name, available in kinds if available()), "cpu")
