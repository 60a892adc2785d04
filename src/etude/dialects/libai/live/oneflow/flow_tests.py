"""``oneflow.unittest``, for tests that are written for OneFlow."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

from etude.dialects.libai.live import distributed as dist

TestCase = unittest.TestCase


def _only_with(devices: int) -> Callable[[], Callable[[Any], Any]]:
    def skip() -> Callable[[Any], Any]:
        return unittest.skipUnless(dist.get_world_size() == devices, f"only runs with {devices} processes")

    return skip


#: On one machine with so many devices: here that many processes.
skip_unless_1n1d = _only_with(1)
skip_unless_1n2d = _only_with(2)
skip_unless_1n4d = _only_with(4)
