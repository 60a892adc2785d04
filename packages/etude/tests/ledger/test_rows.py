"""Rows of the ledger: their digests, damage that is found, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.errors import UserError
from etude.ledger import rows


def some(count: int, *, first: int = 1, digest: int = 0, seed: int = 0) -> rows.Rows:
    draw = np.random.default_rng(seed)
    ids = [torch.from_numpy(draw.integers(0, 1000, draw.integers(1, 9))) for _ in range(count)]
    return rows.made(first, draw.normal(size=count), draw.random(count), ids, digest)


def written(folder: Path, made: rows.Rows) -> Path:
    (folder / rows.FILE).write_bytes(rows.HEADER + made.tobytes())
    return folder


def test_a_row_has_32_bytes() -> None:
    assert rows.ROW.itemsize == 32 == len(rows.HEADER)


@pytest.mark.parametrize("parts", [(9,), (1, 8), (4, 5), (4097, 3), (4096, 4096)])
def test_rows_made_in_parts_are_those_made_at_once(parts: tuple[int, ...]) -> None:
    draw = np.random.default_rng(3)
    losses, norms = draw.normal(size=sum(parts)), draw.random(sum(parts))
    ids = [[number, number + 1] for number in range(sum(parts))]
    whole = rows.made(1, losses, norms, ids, 0)
    at, digest, made = 0, 0, []
    for size in parts:
        part = rows.made(at + 1, losses[at : at + size], norms[at : at + size], ids[at : at + size], digest)
        digest, at = int(part["digest"][-1]), at + size
        made.append(part)
    assert np.concatenate(made).tobytes() == whole.tobytes()
    assert rows.first_damaged(whole) is None


@given(st.integers(0, 39), st.integers(0, 31), st.integers(0, 7))
def test_a_flipped_bit_is_found_at_its_row(row: int, byte: int, bit: int) -> None:
    data = bytearray(some(40).tobytes())
    data[row * 32 + byte] ^= 1 << bit
    assert rows.first_damaged(np.frombuffer(bytes(data), rows.ROW)) == row


def test_a_cut_out_piece_is_found(tmp_path: Path) -> None:
    made = some(40)
    written(tmp_path, np.concatenate([made[:10], made[20:]]))
    with pytest.raises(UserError, match=r"row 11 \(step 21\) is damaged"):
        rows.read(tmp_path)


def test_half_a_row_at_the_end_is_left_out(tmp_path: Path) -> None:
    made = some(5)
    (tmp_path / rows.FILE).write_bytes(rows.HEADER + made.tobytes()[:-7])
    assert rows.read(tmp_path).tobytes() == made[:4].tobytes()


@pytest.mark.parametrize("text", [b"", b"nothing of the kind", b"\0" * 99])
def test_another_file_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / rows.FILE).write_bytes(text)
    with pytest.raises(UserError, match="not a ledger"):
        rows.read(tmp_path)


def test_a_missing_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no ledger of steps"):
        rows.read(tmp_path)


@given(st.lists(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=6), min_size=1, max_size=6))
def test_batches_have_the_digests_that_each_has_alone(batches: list[list[int]]) -> None:
    together = rows.digests_of(batches)
    assert [int(one) for one in together] == [int(rows.digests_of([batch])[0]) for batch in batches]


def test_digests_tell_order_size_and_kind_apart() -> None:
    batches = [[1, 2], [2, 1], [1], [1, 2, 0], [0], [], None, ["a", "b"], ["b", "a"], [(1, 2)]]
    found = rows.digests_of(batches)
    assert len(set(map(int, found))) == len(batches) - 1  # an unknown batch and an empty one are both 0
    assert rows.digests_of([torch.tensor([1, 2])])[0] == found[0] == rows.digests_of([(1, 2)])[0]


def test_losses_keep_their_bits() -> None:
    losses = np.array([0.1, np.float32(0.1), np.inf, -0.0, np.nan, 5e-324])
    made = rows.made(1, losses, np.full(6, np.nan), [None] * 6, 0)
    assert made["loss"].tobytes() == losses.tobytes()
