"""A range coder (``mcquic.rans``) for a McQuic whose compiled one was not built.

The format is that of the compiled coder (64-bit rANS, words of 32 bits), so that each can read the other's output.
:mod:`.rans_compiled` does the work where there is a C compiler, the Python here elsewhere; both write the same bytes.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence

from etude_mcquic.live.model import rans_compiled

_PRECISION = 16
_LOWER = 1 << 31
_WORD = 32
#: Values that a distribution has no place for follow its last symbol in pieces of so many bits. McQuic gives sizes that
#: are one larger than its distributions, so that none has such a last symbol.
_PIECE = 4


def pmfToQuantizedCDF(pmf: Sequence[float], precision: int) -> list[int]:
    """Return cumulative frequencies that end at ``2 ** precision``. Every symbol gets at least one."""
    if any(p < 0 or not math.isfinite(p) for p in pmf):
        raise ValueError("Invalid `pmf`, non-finite or negative element found")
    whole = 1 << precision
    counts = [math.floor(p * whole + 0.5) for p in pmf]
    total = sum(counts)
    if total == 0:
        raise ValueError("Invalid `pmf`: at least one element must have a non-zero probability.")
    cdf = [0]
    for count in counts:
        cdf.append(cdf[-1] + whole * count // total)
    cdf[-1] = whole
    for index in range(len(pmf)):
        if cdf[index] == cdf[index + 1]:
            _take_from_the_rarest(cdf, index)
    return cdf


def _take_from_the_rarest(cdf: list[int], index: int) -> None:
    """Move one count to symbol ``index`` from the rarest symbol that has more than one."""
    widths = [(after - before, place) for place, (before, after) in enumerate(itertools.pairwise(cdf))]
    _, giver = min(pair for pair in widths if pair[0] > 1)
    if giver < index:
        for place in range(giver + 1, index + 1):
            cdf[place] -= 1
    else:
        for place in range(index + 1, giver + 1):
            cdf[place] += 1


class RansEncoder:
    """Encodes symbols to bytes."""

    def encodeWithIndexes(
        self,
        symbols: Sequence[int],
        indexes: Sequence[int],
        cdfs: Sequence[Sequence[int]],
        cdfSizes: Sequence[int],
        offsets: Sequence[int],
    ) -> bytes:
        """Return the bytes. ``indexes`` name the distribution of each symbol; each has a size and an offset."""
        compiled = rans_compiled.library()
        if compiled is not None:
            return rans_compiled.encode(compiled, symbols, indexes, cdfs, cdfSizes, offsets)
        state, words = _LOWER, []
        # rANS decodes last in, first out: what is encoded last is decoded first.
        for symbol, index in reversed(list(zip(symbols, indexes, strict=True))):
            for start, width, bits in reversed(_entries(symbol - offsets[index], cdfs[index], cdfSizes[index] - 2)):
                if state >= ((_LOWER >> bits) << _WORD) * width:
                    words.append(state & 0xFFFFFFFF)
                    state >>= _WORD
                state = (state // width << bits) + state % width + start
        words += [state >> _WORD, state & 0xFFFFFFFF]
        return struct.pack(f"<{len(words)}I", *reversed(words))


def _entries(value: int, cdf: Sequence[int], most: int) -> list[tuple[int, int, int]]:
    """Return start, width and bits of what is encoded for a value: its own symbol, or the last one and pieces."""
    if 0 <= value < most:
        return [(cdf[value], cdf[value + 1] - cdf[value], _PRECISION)]
    if most + 1 >= len(cdf):
        raise ValueError(rans_compiled.UNKNOWN.format(value, most))
    raw = -2 * value - 1 if value < 0 else 2 * (value - most)
    pieces = -(-raw.bit_length() // _PIECE)
    parts = (pieces, *(raw >> (place * _PIECE) & 15 for place in range(pieces)))
    return [(cdf[most], cdf[most + 1] - cdf[most], _PRECISION), *((part, 1, _PIECE) for part in parts)]


class RansDecoder:
    """Decodes bytes to symbols."""

    def decodeWithIndexes(
        self,
        encoded: bytes,
        indexes: Sequence[int],
        cdfs: Sequence[Sequence[int]],
        cdfSizes: Sequence[int],
        offsets: Sequence[int],
    ) -> list[int]:
        """Return the symbols; the arguments are those that the bytes were made with."""
        compiled = rans_compiled.library()
        if compiled is not None:
            return rans_compiled.decode(compiled, encoded, indexes, cdfs, cdfSizes, offsets)
        try:
            reading = _Reading(encoded)
            return [reading.value(cdfs[index], cdfSizes[index] - 2) + offsets[index] for index in indexes]
        except StopIteration:
            raise ValueError(rans_compiled.CUT_OFF) from None


class _Reading:
    """The state of a decoder."""

    def __init__(self, encoded: bytes) -> None:
        self._words = iter(struct.unpack(f"<{len(encoded) // 4}I", encoded[: len(encoded) // 4 * 4]))
        self._state: int = next(self._words) | next(self._words) << _WORD

    def value(self, cdf: Sequence[int], most: int) -> int:
        seen = self._state & ((1 << _PRECISION) - 1)
        symbol = _symbol(cdf, seen, most + 1)
        self._take((cdf[symbol + 1] - cdf[symbol]) * (self._state >> _PRECISION) + seen - cdf[symbol])
        if symbol < most:
            return symbol
        raw = sum([self._piece() << (place * _PIECE) for place in range(self._piece())])
        return -(raw >> 1) - 1 if raw & 1 else (raw >> 1) + most

    def _piece(self) -> int:
        piece = self._state & ((1 << _PIECE) - 1)
        self._take(self._state >> _PIECE)
        return piece

    def _take(self, state: int) -> None:
        self._state = state if state >= _LOWER else state << _WORD | next(self._words)


def _symbol(cdf: Sequence[int], seen: int, high: int) -> int:
    """Return the symbol whose range of cumulative frequencies contains ``seen``."""
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cdf[middle] <= seen else (low, middle)
    return low
