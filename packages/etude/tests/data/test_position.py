"""Data workers draw what torch's own draw, also around passes that a hook makes over the run's loader."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from etude.data.torch_loader import position
from etude.data.torch_loader.position import _behind


class Noise(Dataset[float]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> float:
        return index + float(np.random.rand())


def seeded(worker: int) -> None:
    np.random.seed(7 + worker)


def loader_of(workers: int = 2) -> DataLoader[Any]:
    torch.manual_seed(0)
    return DataLoader(Noise(), 2, num_workers=workers, persistent_workers=True, worker_init_fn=seeded)


def drawn(batches: Any) -> list[list[float]]:
    return [batch.tolist() for batch in batches]


def test_workers_go_on_behind_what_a_hook_took_of_the_loader():
    plain, ours = loader_of(), loader_of()
    workers = position.Workers(2, persist=True)
    assert drawn(position.begin(ours, workers=workers)) == drawn(plain)
    # Two batches are taken, the others have been prepared for nothing; they count in torch's loader, too.
    assert drawn(islice(ours, 2)) == drawn(islice(plain, 2))
    workers.finish()
    saved = dict(workers.states)
    wanted = drawn(plain)
    assert drawn(position.begin(ours, workers=workers)) == wanted
    resumed = position.Workers(2, persist=True)
    resumed.states = saved
    assert drawn(position.begin(loader_of(), workers=resumed)) == wanted


def test_workers_that_a_hook_throws_away_begin_anew():
    ours, workers = loader_of(), position.Workers(2, persist=True)
    assert not workers.are_new(ours, 0)
    first = drawn(position.begin(ours, workers=workers))
    assert not workers.are_new(ours, 0)
    assert drawn(position.begin(ours, workers=workers)) != first
    ours._iterator = None  # as YOLOXModeSwitchHook does
    assert workers.are_new(ours, 0)
    assert drawn(position.begin(ours, workers=workers)) == first


def test_batches_behind_a_position_follow_it_also_when_the_source_has_begun_again():
    began = []
    assert list(_behind(["a", "b", "c"], 1, None)) == ["b", "c"]
    assert list(_behind(["a", "b", "c"], 4, lambda: began.append(1))) == ["b", "c"] and began == [1]
    assert list(_behind(["a"], 3, None)) == [] == list(_behind([], 3, lambda: None))
