"""Moves batches to the device one step ahead, so that copying and computing overlap on an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def move(batch: Any, device: torch.device | str) -> Any:
    """Return ``batch`` with every tensor in it on ``device``: inside tuples, lists, mappings and anything with
    ``.to``."""
    if isinstance(batch, Tensor):
        return _copy(batch, torch.device(device))
    if isinstance(batch, Mapping):
        return type(batch)({key: move(value, device) for key, value in batch.items()})  # type: ignore[call-arg]
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(value, device) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(move(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch


def ahead(items: Iterator[T], prepare: Callable[[T], T]) -> Iterator[T]:
    """Yield ``prepare(item)`` of each item, prepared one item ahead."""
    waiting: list[T] = []
    for item in items:
        waiting.append(prepare(item))
        if len(waiting) > 1:
            yield waiting.pop(0)
    yield from waiting


def _copy(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.device == device or device.type == "cpu" == tensor.device.type:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()  # only copies from pinned memory overlap with computation
    return tensor.to(device, non_blocking=True)
