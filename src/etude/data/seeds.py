"""Random numbers that depend on who asks, not on who asked before.

What a sample draws is a function of (seed, epoch, index). So the number of workers does not matter, and a run that
was interrupted goes on with the numbers it would have drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """A 64-bit number that every one of ``numbers`` has a say in (the finaliser of SplitMix64, chained)."""
    value = 0x9E3779B97F4A7C15
    for number in numbers:
        value = (value + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value


def seed_process(number: int) -> None:
    """Seed the generators that samples draw from: Python's, numpy's and torch's on the CPU."""
    random.seed(number)
    np.random.seed(number & 0xFFFFFFFF)
    torch.default_generator.manual_seed(number >> 1)


class States:
    """Where the generators of the process stand."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy: Any = np.random.get_state()
        self._torch = torch.default_generator.get_state()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, States)
            and self._python == other._python
            and torch.equal(self._torch, other._torch)
            and self._numpy[2:] == other._numpy[2:]
            and bool((self._numpy[1] == other._numpy[1]).all())
        )

    __hash__ = None  # type: ignore[assignment]

    def restore(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.default_generator.set_state(self._torch)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Give the process its generators back as they were, whatever is seeded inside."""
    states = States()
    try:
        yield
    finally:
        states.restore()
