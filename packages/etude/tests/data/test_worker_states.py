"""Which random numbers data workers draw. A worker is a number here: its functions are called in this process."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils import fetch

from etude.data.seeds import kept_generators
from etude.data.torch_loader.epoch_seeds import Batch, EpochSeeds, end_workers, follow_torch, keep_workers, stay_seeded
from etude.data.torch_loader.worker_states import (
    Desk,
    Drawn,
    StartWorker,
    Turn,
    current_state,
    from_tensors,
    restore,
    to_tensors,
)  # fmt: skip


@pytest.fixture(autouse=True)
def fetching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker changes how it fetches; here that ends with the test."""
    monkeypatch.setattr(fetch._MapDatasetFetcher, "fetch", fetch._MapDatasetFetcher.fetch)
    with kept_generators():
        yield


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def drawn_after(seed: int, *, skip: int = 0) -> tuple[float, float, float]:
    """What all generators draw next, ``skip`` numbers after a seed."""
    with kept_generators():
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        return [draw() for _ in range(skip + 1)][-1]


def fetcher() -> Any:
    class Draws:
        def __getitem__(self, index: int) -> tuple[float, float, float]:
            return draw()

    return fetch._MapDatasetFetcher(Draws(), True, list, False)


def test_all_generators_follow_torch_within_the_bits_that_they_take():
    torch.manual_seed(2**32 + 5)
    follow_torch(0)
    assert draw()[:2] == drawn_after(5)[:2]


def test_a_sampler_names_a_seed_from_the_second_pass_on_as_torch_would_draw_it():
    sampler = EpochSeeds([[0, 1], [2]])
    assert [(list(batch), batch.seed) for batch in sampler] == [([0, 1], None), ([2], None)]
    torch.manual_seed(3)
    seeds = [[batch.seed for batch in sampler] for _ in range(2)]
    torch.manual_seed(3)
    wanted = [int(torch.empty((), dtype=torch.int64).random_()) for _ in range(2)]
    assert seeds == [[wanted[0]] * 2, [wanted[1]] * 2] and len(sampler) == 2


def test_a_worker_is_seeded_when_a_batch_says_so_and_goes_on_with_the_same_seed():
    torch.manual_seed(40)
    stay_seeded(3)
    assert draw() == drawn_after(40)
    made = fetcher()

    def batch(seed: int | None) -> Any:
        indices = Batch([0])
        indices.seed = seed
        return made.fetch(indices)[0]

    assert batch(None) == drawn_after(40, skip=1)
    assert [batch(100), batch(100)] == [drawn_after(103), drawn_after(103, skip=1)]
    assert batch(200) == drawn_after(203) and made.fetch([0])[0] == drawn_after(203, skip=1)


def test_a_loader_keeps_its_workers_and_what_is_asked_of_its_sampler():
    loader = keep_workers(DataLoader(range(5), batch_size=2))
    assert isinstance(loader.batch_sampler, EpochSeeds) and loader.batch_sampler.batch_size == 2 and len(loader) == 3
    assert copy.deepcopy(loader.batch_sampler).drop_last is False
    with pytest.raises(AttributeError):
        EpochSeeds.__new__(EpochSeeds).batches


def test_workers_are_ended_of_lasting_loaders_and_of_passes_that_were_left():
    class Ended:
        count = 0

        def _shutdown_workers(self) -> None:
            self.count += 1

    lasting, left, loader = Ended(), Ended(), DataLoader(range(2))
    loader._iterator = lasting
    end_workers([loader, DataLoader(range(2)), [1]], [left, iter([1])])
    assert (lasting.count, left.count, loader._iterator) == (1, 1, None)


def test_the_state_of_all_generators_goes_through_a_checkpoint():
    random.gauss(0, 1), np.random.randn()
    saved = to_tensors(current_state())
    wanted = draw(), random.gauss(0, 1), np.random.randn()
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    restore(from_tensors(saved))
    assert (draw(), random.gauss(0, 1), np.random.randn()) == wanted


def test_one_process_stands_for_several_workers_with_a_generator_each():
    desk = Desk(None, 100)

    def turn(worker: int, **more: Any) -> Any:
        made = desk.make(Turn(worker, **more), draw)
        assert made.worker == worker
        return made

    first = turn(1)
    assert first.batch == drawn_after(101) and turn(1).batch == drawn_after(101, skip=1)
    assert turn(0).batch == drawn_after(100) and turn(1).batch == drawn_after(101, skip=2)
    assert turn(1, state=first.state).batch == drawn_after(101, skip=1)
    assert turn(1, fresh=True).batch == drawn_after(101) and turn(2, fresh=True).batch == drawn_after(102)
    torch.manual_seed(7), random.seed(7), np.random.seed(7)
    assert Desk(None, 100, current=1).make(Turn(1), draw).batch == drawn_after(7)


def test_a_worker_that_starts_calls_your_function_and_takes_turns():
    called: list[int] = []
    torch.manual_seed(105), random.seed(105), np.random.seed(105)
    StartWorker(called.append)(5)
    made = fetcher()

    def batch(worker: int, indices: list[int]) -> Any:
        drawn = Drawn(indices)
        drawn.turn = Turn(worker)
        return made.fetch(copy.copy(drawn))

    assert batch(5, [0]).batch[0] == drawn_after(105) and batch(6, [0]).batch[0] == drawn_after(106)
    asked = batch(5, [])
    assert asked.batch is None and asked.worker == 5 and called == [5, 6]
    assert made.fetch([0])[0] == drawn_after(105, skip=1)
