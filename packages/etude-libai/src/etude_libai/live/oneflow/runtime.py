"""OneFlow's runtime modules: ``boxing``, ``comm``, ``mock_torch``, ``utils.global_view``, ``unittest`` and others."""

from __future__ import annotations

import contextlib
import unittest
from collections.abc import Callable
from typing import Any

import torch

from etude_libai.live import distributed as dist
from etude_libai.live import topology


def barrier() -> None:
    """Wait for all processes."""
    dist.synchronize()


def _ignore(value: Any = None) -> None:
    """Do nothing: torch.distributed chooses its transport, the size of its messages and its streams itself."""


init_rdma = set_fusion_threshold_mbytes = set_fusion_max_ops_num = _ignore
disable_group_boxing_by_dst_parallel = enable_use_compute_stream = _ignore


def GradScaler(init_scale: float = 2.0**16, **options: Any) -> torch.amp.GradScaler:
    """Return a gradient scaler for the available device."""
    return torch.amp.GradScaler("cuda" if torch.cuda.is_available() else "cpu", init_scale=init_scale, **options)


class global_mode(contextlib.ContextDecorator):
    """``with global_mode(True, placement=…, sbp=…)``, which has no effect: tensors are never split."""

    def __init__(self, enabled: bool = True, placement: Any = None, sbp: Any = None) -> None:
        self.is_enabled, self.placement, self.sbp = enabled, placement, sbp

    def __enter__(self) -> global_mode:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class enable(contextlib.AbstractContextManager["enable", None]):
    """``oneflow.mock_torch.enable()``, which has no effect: ``import torch`` is torch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Accept OneFlow's arguments (lazy, verbose, extra_dict)."""

    def __exit__(self, *error: object) -> None:
        return None


disable = enable


def is_enabled() -> bool:
    return False


def cpu_broadcast(data: bytes | None, src: int = 0) -> bytes:
    """Return the bytes of process ``src`` in all processes."""
    return bytes(dist.broadcast_py_object(data, src))


def broadcast_py_object(obj: Any, src: int = 0) -> Any:
    return dist.broadcast_py_object(obj, src)


def BalancedRanges(total: int, num_splits: int) -> list[tuple[int, int]]:
    """Return the begin and the end of each of ``num_splits`` parts of nearly equal length, longer ones first."""
    each, longer = divmod(total, num_splits)
    ends = [(index + 1) * each + min(index + 1, longer) for index in range(num_splits)]
    return list(zip([0, *ends[:-1]], ends, strict=True))


# -- oneflow.unittest, for tests that are written for OneFlow ----------------------------------------------------------

TestCase = unittest.TestCase


def _only_with(devices: int) -> Callable[[], Callable[[Any], Any]]:
    def skip() -> Callable[[Any], Any]:
        return unittest.skipUnless(topology.get_world_size() == devices, f"only runs with {devices} processes")

    return skip


#: OneFlow's decorators for one machine with 1, 2 or 4 devices; here as many processes.
skip_unless_1n1d = _only_with(1)
skip_unless_1n2d = _only_with(2)
skip_unless_1n4d = _only_with(4)
