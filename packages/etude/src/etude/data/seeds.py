"""Seeds the random generators of samples, workers and ranks.

The random numbers of a sample are a function of (seed, epoch, index). So the number of workers does not matter, and a
resumed run draws the same numbers as an uninterrupted one.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
#: Bytes of a Mersenne twister in memory: 624 words, and the number of those that were used.
_TWISTER = 4 * 625
#: Keep other draws apart from those of samples, whose index is 0 or more: ``mix(seed, epoch, ORDER)``.
#: Checkpoints and recorded runs depend on these numbers.
ORDER, SAMPLER, COLLATE, STREAM = -1, -2, -3, -4
#: Keeps the streams of ranks apart from all of these: ``mix(seed, RANK, rank)``; no epoch is negative.
RANK = -4
#: Keeps the streams of virtual ranks apart: ``mix(seed, rank, step, VIRTUAL)``.
VIRTUAL = -5


def mix(*numbers: int) -> int:
    """Mix ``numbers`` into one 64-bit number (the finaliser of SplitMix64, chained)."""
    value = _GOLDEN
    for number in numbers:
        value = (value + (number & _MASK) + _GOLDEN) & _MASK
        value = ((value ^ (value >> 30)) * _FIRST) & _MASK
        value = ((value ^ (value >> 27)) * _SECOND) & _MASK
        value ^= value >> 31
    return value


def mix_each(numbers: Sequence[int], last: Sequence[int]) -> list[int]:
    """Return ``mix(*numbers, n)`` for every ``n`` of ``last``, computed together.

    >>> mix_each((1, 2), [3, -4]) == [mix(1, 2, 3), mix(1, 2, -4)]
    True
    """
    value = np.array(last, dtype=np.int64).view(np.uint64) + np.uint64((mix(*numbers) + _GOLDEN) & _MASK)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(_FIRST)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(_SECOND)
    return (value ^ (value >> np.uint64(31))).tolist()  # type: ignore[no-any-return]


def seed_python(number: int) -> None:
    """Do the same as ``random.seed(number)`` for an integer, without its type checks."""
    _seed_twister(number)
    random._inst.gauss_next = None  # type: ignore[attr-defined]


_seed_twister = super(random.Random, random._inst).seed


def seed_numpy(number: int) -> None:
    np.random.seed(number & 0xFFFFFFFF)  # numpy takes 32 bits


def seed_torch(number: int) -> None:
    torch.default_generator.manual_seed(number >> 1)  # the CPU's alone: torch.manual_seed would seed every device


def seed_process(number: int) -> None:
    """Seed the generators that samples draw from: Python's, numpy's and torch's on the CPU."""
    seed_python(number)
    seed_numpy(number)
    seed_torch(number)


def seed_everywhere(number: int) -> None:
    """Seed the generators of Python, numpy and torch, on all devices, as training scripts do."""
    random.seed(number)
    np.random.seed(number % 2**32)  # numpy takes no larger seeds
    torch.manual_seed(number)


def seed_rank(seed: int, world: Any, step: int = 0) -> None:
    """Give a rank its own stream of random numbers; the first gets that of a single process."""
    if not world.is_main:
        seed_process(mix(seed, world.rank, step, RANK))


class Generator:
    """One generator of the process. Its state is kept while other code seeds it and draws, and restored afterwards.

    Reading a state through Python can take longer than reading a sample. So :meth:`look` reads something cheap that
    every draw changes, and the state is read again only if that has changed.
    """

    seed: Callable[[int], None]
    _look: Any = None
    _state: Any = None

    def look(self) -> Any:
        """Return a value that differs, by ``==``, after a number was drawn."""
        raise NotImplementedError

    def _get(self) -> Any:
        raise NotImplementedError

    def keep(self) -> None:
        look = self.look()
        if look != self._look:
            self._look, self._state = look, self._get()

    def put_back(self) -> None:
        """Restore the state that :meth:`keep` found."""
        raise NotImplementedError

    def give_back(self) -> bool:
        """Restore the generator if it has moved; return whether it had."""
        moved = bool(self.look() != self._look)
        if moved:
            self.put_back()
        return moved


class PythonGenerator(Generator):
    seed = staticmethod(seed_python)

    def look(self) -> Any:
        return _python_look()

    def _get(self) -> Any:
        return None if _python_look is _python_peek else random.getstate()

    def put_back(self) -> None:
        if _python_look is not _python_peek:
            random.setstate(self._state)
            return
        _python_words.raw, random._inst.gauss_next = self._look  # type: ignore[attr-defined]


class NumpyGenerator(Generator):
    """numpy's global generator. It makes normal numbers in pairs, and returning the second one does not change its
    state.

    So the second number is kept apart, and while there is one the state is read each time.
    """

    seed = staticmethod(seed_numpy)
    _aside = False
    _bits: Any = None
    _words: Any = None

    def look(self) -> Any:
        bits = np.random.get_bit_generator()  # type: ignore[attr-defined]
        # A program may have put another bit generator in its place.
        if bits is not self._bits:
            self._bits, self._words = bits, None
            if type(bits) is np.random.MT19937:
                self._words = _Words.from_address(bits.ctypes.state_address)
        return repr(np.random.get_state(legacy=False)) if self._words is None else self._words.raw

    def keep(self) -> None:
        if self._aside:
            self._look = None
        super().keep()
        self._aside = bool(self._state["has_gauss"])
        if self._aside:
            np.random.set_state({**self._state, "has_gauss": 0, "gauss": 0.0})

    def give_back(self) -> bool:
        moved = super().give_back()
        if self._aside and not moved:
            np.random.set_state(self._state)
        return moved

    def _get(self) -> Any:
        return np.random.get_state(legacy=False)

    def put_back(self) -> None:
        if self._aside or self._words is None:
            np.random.set_state(self._state)
            return
        np.random.seed(0)  # forgets the second number of a pair, at a twentieth of what set_state takes
        self._words.raw = self._look


class TorchGenerator(Generator):
    seed = staticmethod(seed_torch)

    def look(self) -> Any:
        return _bytes(torch.default_generator.get_state())

    def keep(self) -> None:
        self._state = torch.default_generator.get_state()

    def give_back(self) -> bool:
        moved = self.look() != _bytes(self._state)
        if moved:
            self.put_back()
        return bool(moved)

    def put_back(self) -> None:
        torch.default_generator.set_state(self._state)


def generators() -> tuple[Generator, ...]:
    """Return the generators that samples draw from."""
    return PythonGenerator(), NumpyGenerator(), TorchGenerator()


@contextmanager
def kept_generators() -> Iterator[None]:
    """Restore the generators of the process after the block, whatever is seeded inside."""
    kept = generators()
    for generator in kept:
        generator.keep()
    try:
        yield
    finally:
        for generator in kept:
            generator.give_back()


def _bytes(state: torch.Tensor) -> bytes:
    return ctypes.string_at(state.data_ptr(), state.numel())


_Words = ctypes.c_char * _TWISTER
#: The memory of Python's generator. Reading and writing it takes a fiftieth of what getstate and setstate take.
_python_words = _Words.from_address(id(random._inst) + object.__basicsize__)


def _python_peek() -> Any:
    return _python_words.raw, random._inst.gauss_next  # type: ignore[attr-defined]


def _can_peek() -> bool:
    """Return whether the memory of Python's generator is laid out as CPython has it: used words, then the words."""
    words = np.frombuffer(_python_words.raw, dtype=np.uint32).tolist()
    return bool(random.getstate()[1] == (*words[1:], words[0]))


_python_look = _python_peek if _can_peek() else random.getstate
