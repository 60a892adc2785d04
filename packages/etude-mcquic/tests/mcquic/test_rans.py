"""The range coder in C and in Python: the same bytes, and the same errors."""

from __future__ import annotations

import random

import pytest

from etude_mcquic.live.model import rans_compiled
from etude_mcquic.live.model.rans import RansDecoder, RansEncoder, pmfToQuantizedCDF

#: What McQuic's own coder (its C++ compiled, 0.1.40) makes of the same symbols.
ORIGINAL = "b818a2bd090000008d831ff9f3e2f83cc6a3a531fe2eac08c4ff0f6a512114c3fdff90ff211d62149422466641f9fc6162e8eddd1aff0ab2452d22f99bfdb16b"


def given() -> tuple[list[int], list[int], list[list[int]], list[int]]:
    """Return symbols, some of them outside of their distributions, and what they are encoded with."""
    draw = random.Random(5)
    cdfs = [pmfToQuantizedCDF([draw.random() ** 4 for _ in range(size)], 16) for size in (7, 90)]
    indexes = [draw.randrange(2) for _ in range(40)]
    return [draw.randrange(-3, (9, 99)[row]) for row in indexes] + [70_000, -70_000], [*indexes, 0, 1], cdfs, [0, 1]


@pytest.fixture(params=["compiled", "python"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(rans_compiled, "library", lambda: None)
    elif rans_compiled.library() is None:
        pytest.skip("there is no C compiler")
    return str(request.param)


def test_both_coders_write_the_bytes_of_the_original_and_read_them(kind: str) -> None:
    symbols, indexes, cdfs, offsets = given()
    sizes = [len(cdf) for cdf in cdfs]
    encoded = RansEncoder().encodeWithIndexes(symbols, indexes, cdfs, sizes, offsets)
    assert encoded.hex() == ORIGINAL
    assert RansDecoder().decodeWithIndexes(encoded, indexes, cdfs, sizes, offsets) == symbols


def test_bytes_that_end_too_early_are_an_error(kind: str) -> None:
    symbols, indexes, cdfs, offsets = given()
    sizes = [len(cdf) for cdf in cdfs]
    encoded = RansEncoder().encodeWithIndexes(symbols, indexes, cdfs, sizes, offsets)
    for length in (0, 8, len(encoded) - 4):
        with pytest.raises(ValueError, match="end too early"):
            RansDecoder().decodeWithIndexes(encoded[:length], indexes, cdfs, sizes, offsets)


def test_sizes_of_mcquic_leave_no_symbol_for_other_values(kind: str) -> None:
    """They are one larger than the distributions."""
    cdf = pmfToQuantizedCDF([0.5, 0.25, 0.25], 16)
    symbols, sizes = [0, 2, 1, 2, 2], [len(cdf) + 1]
    encoded = RansEncoder().encodeWithIndexes(symbols, [0] * 5, [cdf], sizes, [0] * 5)
    assert RansDecoder().decodeWithIndexes(encoded, [0] * 5, [cdf], sizes, [0] * 5) == symbols
    with pytest.raises(ValueError, match="symbol 3 is not one of the 3 symbols"):
        RansEncoder().encodeWithIndexes([3], [0], [cdf], sizes, [0])
