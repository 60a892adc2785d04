"""Batches through shared memory: what arrives, and that its place is used again."""

from __future__ import annotations

import gc
import mmap
import os
from typing import Any

import numpy as np
import pytest
import torch

from etude.data.loader import Loader
from etude.data.shared_memory import Area, Receiver, Sender
from tests.sampling import sample


@pytest.fixture
def ends():
    area = Area()
    yield Sender(area), Receiver(area)
    area.close()


VALUES: dict[str, Any] = {
    "floats": torch.randn(3, 4),
    "bfloat16": torch.randn(5).bfloat16(),
    "scalar": torch.tensor(7),
    "empty": torch.empty(0, 3),
    "bools": torch.tensor([True, False]),
    "complex": torch.randn(2, dtype=torch.complex64),
    "conjugate": torch.randn(2, dtype=torch.complex64).conj(),
    "columns": torch.arange(6).view(2, 3).T,
    "sparse": torch.eye(3).to_sparse(),
    "array": np.arange(5.0),
    "empty array": np.empty((0, 2)),
    "words": ["a", "b"],
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_what_is_sent_arrives(ends, value):
    sender, receiver = ends
    got = receiver.value(sender.message({"x": value, "twice": (value, 1)}))
    for one in (got["x"], got["twice"][0]):
        if isinstance(value, torch.Tensor):
            assert one.dtype == value.dtype and one.shape == value.shape
            assert torch.equal(one.to_dense(), value.to_dense())
        elif isinstance(value, np.ndarray):
            assert one.dtype == value.dtype and np.array_equal(one, value)
        else:
            assert one == value


def test_a_place_is_used_again_once_all_of_it_was_let_go(ends):
    sender, receiver = ends
    first = receiver.value(sender.message([torch.zeros(100), torch.ones(100)]))
    part = first[1][10:20]
    del first
    gc.collect()
    assert receiver.freed() == []
    assert receiver.value(sender.message(torch.full((200,), 5.0))).sum() == 1000
    sender.free(receiver.freed())
    second = receiver.value(sender.message(torch.full((200,), 6.0)))
    assert part.tolist() == [1.0] * 10 and second.sum() == 1200
    size = os.fstat(receiver._area.handle).st_size
    del part, second
    for number in range(20):
        sender.free(receiver.freed())
        assert receiver.value(sender.message(torch.full((200,), float(number)))).mean() == number
    assert os.fstat(receiver._area.handle).st_size == size


class Rows:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, np.ndarray]:
        return torch.full((50,), float(index)), np.full(3, index)


@pytest.mark.parametrize("start", sample(("fork", "spawn", "forkserver"), (0, 1)))
def test_batches_that_are_kept_keep_their_numbers_and_outlive_the_workers(start):
    loader = Loader(Rows(), batch_size=4, workers=2, start_method=start)
    kept = [batch for _ in range(2) for batch in loader]
    loader.close()
    for number, (rows, arrays) in enumerate(kept):
        want = torch.arange(4) + number % 16 * 4
        assert torch.equal(rows, want[:, None].expand(4, 50).float()) and torch.equal(arrays[:, 0], want)
        rows.add_(1)  # they are the run's own, to be changed as it likes


@pytest.mark.parametrize(("size", "taken"), [(1, 1), (4, 4), (5, 5), (15, 16), (17, 20), (33, 40), (63, 64), (64, 64)])
def test_sizes_are_rounded_up_so_that_batches_of_similar_size_share_a_place(ends, size, taken):
    sender, _ = ends
    unit = mmap.ALLOCATIONGRANULARITY
    begin, got = sender._place(size * unit)
    assert got == taken * unit and sender._place(1)[0] == begin + got
    sender.free([(begin, got)])
    assert sender._place(size * unit) == (begin, got)
    assert sender._place(size * unit)[0] > begin
