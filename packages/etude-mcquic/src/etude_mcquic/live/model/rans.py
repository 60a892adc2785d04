"""A range coder (``mcquic.rans``) in Python, for a McQuic whose compiled one was not built.

The format is that of the compiled coder (64-bit rANS, words of 32 bits), so that each can read the other's output.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Sequence

_PRECISION = 16
_LOWER = 1 << 31
_WORD = 32


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
        state, words = _LOWER, []
        # rANS decodes last in, first out: what is encoded last is decoded first.
        for symbol, index, offset in reversed(list(zip(symbols, indexes, offsets, strict=True))):
            cdf, value = cdfs[index], symbol - offset
            if not 0 <= value < len(cdf) - 1:
                raise ValueError(f"symbol {symbol} is not one of the {len(cdf) - 1} symbols of its distribution")
            start, width = cdf[value], cdf[value + 1] - cdf[value]
            if state >= ((_LOWER >> _PRECISION) << _WORD) * width:
                words.append(state & 0xFFFFFFFF)
                state >>= _WORD
            state = (state // width << _PRECISION) + state % width + start
        words += [state >> _WORD, state & 0xFFFFFFFF]
        return struct.pack(f"<{len(words)}I", *reversed(words))


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
        words = iter(struct.unpack(f"<{len(encoded) // 4}I", encoded))
        state = next(words) | next(words) << _WORD
        found = []
        for index, offset in zip(indexes, offsets, strict=True):
            cdf, seen = cdfs[index], state & ((1 << _PRECISION) - 1)
            value = _symbol(cdf, seen)
            state = (cdf[value + 1] - cdf[value]) * (state >> _PRECISION) + seen - cdf[value]
            if state < _LOWER:
                state = state << _WORD | next(words)
            found.append(value + offset)
        return found


def _symbol(cdf: Sequence[int], seen: int) -> int:
    """Return the symbol whose range of cumulative frequencies contains ``seen``."""
    low, high = 0, len(cdf) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cdf[middle] <= seen else (low, middle)
    return low
