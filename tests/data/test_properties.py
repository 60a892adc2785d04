"""Orders, shares, draws and resuming hold for any size, position and number of workers."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.data.order import Sampled, SampledBatches, Shared, Shuffled, share_of
from etude.data.resume import Pass, Snapshot
from etude.data.samplers import Balanced, LengthGrouped, RepeatedAugmentation, Subset, Weighted
from etude.data.seeds import mix, mix_each, seed_process, seed_python
from tests.sampling import examples

SIZES = st.integers(1, 40)
NUMBERS = st.integers(-(2**63), 2**63 - 1)


class Noisy:
    """Draws from all three generators, an odd number of normals among them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        drawn = [random.gauss(0, 1), np.random.randn(), float(torch.rand(()))]
        return index, torch.tensor([*drawn, random.random()], dtype=torch.float64)


class NoisyStream(IterableDataset[Any]):
    def __init__(self, size: int, *, stateful: bool) -> None:
        self.size, self.position = size, 0
        if stateful:
            self.state_dict = lambda: {"position": self.position}
            self.load_state_dict = lambda state: setattr(self, "position", state["position"])

    def __iter__(self) -> Any:
        start, self.position = self.position, 0
        for index in range(start, self.size):
            self.position = index + 1
            yield index, np.random.randn() + random.random()
        self.position = 0


def plain(loader: Any) -> list[Any]:
    return [[part.tolist() for part in batch] for batch in loader]


@given(SIZES, SIZES, st.booleans(), st.booleans(), NUMBERS, st.integers(0, 5), st.floats(0, 1))
def test_an_epoch_is_every_sample_once_and_begins_anywhere(size, batch_size, shuffle, drop_last, seed, epoch, place):
    source = Shuffled(size, batch_size, shuffle, drop_last, seed)
    tasks = list(source.tasks(epoch, 0))
    sizes = [len(task.indices) for task in tasks]
    seen = [index for task in tasks for index in task.indices.tolist()]
    assert len(tasks) == len(source) and [task.batch for task in tasks] == list(range(len(tasks)))
    assert all(number == batch_size for number in sizes[:-1]) and all(0 < number <= batch_size for number in sizes)
    assert len(seen) == (size // batch_size * batch_size if drop_last else size) and len(set(seen)) == len(seen)
    assert drop_last or sorted(seen) == list(range(size))
    assert shuffle or seen == list(range(len(seen)))
    for start in {0, round(place * len(tasks)), len(tasks)}:
        rest = list(source.tasks(epoch, start))
        assert [(t.batch, t.indices.tolist()) for t in rest] == [(t.batch, t.indices.tolist()) for t in tasks[start:]]


def test_orders_of_other_epochs_and_seeds_are_others():
    orders = {
        tuple(Shuffled(50, 8, True, False, seed).order(epoch).tolist()) for seed in range(5) for epoch in range(5)
    }
    assert len(orders) == 25
    assert Shuffled(6, 2, True, False, 0).order(0).tolist() == [3, 1, 4, 2, 0, 5]  # checkpoints rely on it


@given(SIZES, SIZES, st.integers(1, 7), NUMBERS)
def test_ranks_share_a_batch_without_loss_or_repetition(size, batch_size, world, seed):
    whole = Shuffled(size, batch_size, True, False, seed)
    shares = [list(Shared(whole, (rank, world)).tasks(1, 0)) for rank in range(world)]
    assert {len(Shared(whole, (rank, world))) for rank in range(world)} == {len(whole)}
    for task, *parts in zip(whole.tasks(1, 0), *shares, strict=True):
        counted = [part for part in parts if part.weight > 0]
        assert [i for part in counted for i in part.indices.tolist()] == task.indices.tolist()
        assert sum(part.weight for part in parts) == pytest.approx(world)
        assert all(part.weight == pytest.approx(len(part.indices) * world / len(task.indices)) for part in counted)
        assert all(part.indices.tolist() == task.indices[:1].tolist() for part in parts if part.weight == 0)
        lengths = [len(part.indices) for part in counted]
        assert max(lengths) - min(lengths) <= 1


def test_shares_lie_one_behind_the_other():
    assert [share_of(list("abcde"), (rank, 3))[0] for rank in range(3)] == [["a"], ["b", "c"], ["d", "e"]]


@given(st.lists(st.integers(0, 99), min_size=1, max_size=30), st.integers(1, 8), st.booleans())
def test_the_order_of_a_sampler_begins_anywhere(indices, batch_size, drop_last):
    source = Sampled(indices, batch_size, drop_last)
    tasks = list(source.tasks(0, 0))
    seen = [index for task in tasks for index in task.indices]
    assert len(tasks) == len(source) and seen == indices[: len(seen)]
    assert len(seen) == (len(indices) // batch_size * batch_size if drop_last else len(indices))
    batches = SampledBatches([indices[n : n + batch_size] for n in range(0, len(indices), batch_size)])
    for start in range(len(batches) + 1):
        assert list(source.tasks(0, start)) == tasks[start:]
        assert [t.indices for t in batches.tasks(0, start)] == batches.sampler[start:]
        assert [t.batch for t in batches.tasks(0, start)] == list(range(start, len(batches)))


def test_a_sampler_draws_by_seed_and_epoch_and_leaves_the_generators_alone():
    data = Noisy(12)
    before = Snapshot.take()
    drawn = {
        (seed, epoch): [t.indices for t in Sampled(RepeatedAugmentation(data), 4, False, seed).tasks(epoch, 0)]
        for seed in range(3)
        for epoch in range(3)
        for _ in range(2)
    }
    assert same(before, Snapshot.take()) and len({str(order) for order in drawn.values()}) == 9
    again = Sampled(RepeatedAugmentation(data), 4, False, 2).tasks(1, 0)
    assert drawn[2, 1] == [task.indices for task in again]


def same(one: Snapshot, two: Snapshot) -> bool:
    states = zip(_flat(one.state_dict()), _flat(two.state_dict()), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in states)


def _flat(state: Any) -> list[Any]:
    return [leaf for value in state.values() for leaf in _flat(value)] if isinstance(state, dict) else [state]


@settings(max_examples=examples(25), deadline=None)
@given(SIZES, st.integers(1, 9), st.integers(0, 9), st.integers(0, 3), st.booleans(), st.booleans())
def test_a_loader_resumes_at_any_position(size, batch_size, cut, epoch, gaussian, sampled):
    random.seed(1), np.random.seed(1)
    if gaussian:  # a second normal is waiting in each generator
        random.gauss(0, 1), np.random.randn()

    def loader() -> Loader:
        data = Noisy(size)
        sampler = RepeatedAugmentation(data, 2) if sampled else None
        made = Loader(data, batch_size=batch_size, shuffle=not sampled, sampler=sampler, seed=7)
        made.set_epoch(epoch)
        return made

    before = Snapshot.take()
    whole = plain(loader())
    first, second = loader(), loader()
    seen = plain(islice(first, min(cut, len(first))))  # further on, the next epoch would begin
    second.load_state_dict(first.state_dict())
    assert seen + plain(second) == whole
    assert same(before, Snapshot.take())
    values = [str(row) for batch in whole for row in batch[1]]
    assert len(set(values)) == len(values)  # also where a sample comes twice


@settings(max_examples=examples(15), deadline=None)
@given(SIZES, st.integers(1, 9), st.integers(0, 9), st.booleans(), st.booleans())
def test_a_stream_resumes_at_any_position(size, batch_size, cut, stateful, drop_last):
    def loader() -> Loader:
        return Loader(NoisyStream(size, stateful=stateful), batch_size=batch_size, drop_last=drop_last, seed=3)

    if drop_last and size < batch_size:
        return
    whole = plain(loader())
    first, second = loader(), loader()
    seen = plain(islice(first, min(cut, len(whole))))
    second.load_state_dict(first.state_dict())
    assert seen + plain(second) == whole
    assert [i for batch in whole for i in batch[0]] == list(
        range(size // batch_size * batch_size if drop_last else size)
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_change_nothing_at_any_position(workers):
    plans = [(17, 4, 0), (17, 4, 2), (5, 5, 0), (1, 3, 0)]
    for size, batch_size, cut in plans:
        whole = plain(Loader(Noisy(size), batch_size=batch_size, shuffle=True, seed=5))
        loader = Loader(Noisy(size), batch_size=batch_size, shuffle=True, seed=5, workers=workers)
        loader.load_state_dict({"epoch": 0, "batch": cut, "seed": 5, "samples": size})
        assert plain(loader) == whole[cut:]
        loader.close()


def test_batches_of_very_many_samples_pass_through_workers():
    def loader(workers: int) -> Loader:
        return Loader(range(36_000), batch_size=12_000, shuffle=True, workers=workers, collate=lambda rows: list(rows))

    many = loader(2)
    assert list(many) == list(loader(0))
    many.close()


@given(st.lists(NUMBERS, max_size=4), st.lists(NUMBERS, min_size=1, max_size=20))
def test_numbers_are_mixed_alike_alone_and_together(numbers, last):
    mixed = mix_each(numbers, last)
    assert mixed == [mix(*numbers, number) for number in last]
    assert all(0 <= number < 2**64 for number in mixed) and len(set(mixed)) == len(set(last))


def test_mixed_numbers_stay_the_same_for_old_checkpoints():
    assert [mix(), mix(0), mix(1, 2), mix(2, 1), mix(-1)] == [
        0x9E3779B97F4A7C15, 0x6E789E6AA1B965F4, mix_each((1,), [2])[0], mix_each((2,), [1])[0], mix_each((), [-1])[0],
    ]  # fmt: skip
    assert len({mix(a, b) for a in range(-20, 20) for b in range(-20, 20)}) == 1600


@given(st.integers(0, 2**64 - 1))
def test_seeding_is_that_of_each_library(number):
    kept = Snapshot.take()
    try:
        random.gauss(0, 1)
        seed_python(number)
        ours = [random.random(), random.gauss(0, 1)]
        random.seed(number)
        assert ours == [random.random(), random.gauss(0, 1)]
        seed_process(number)
        drawn = random.random(), np.random.rand(), float(torch.rand(()))
        random.seed(number), np.random.seed(number & 0xFFFFFFFF), torch.manual_seed(number >> 1)
        assert drawn == (random.random(), np.random.rand(), float(torch.rand(())))
    finally:
        kept.restore()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 50))
def test_length_groups_hold_every_sample_once(lengths, group):
    sampler = LengthGrouped([torch.zeros(length) for length in lengths], group=group)
    order = list(sampler)
    assert len(sampler) == len(order) and sorted(order) == list(range(len(lengths)))
    for start in range(0, len(order), group):
        found = [lengths[index] for index in order[start : start + group]]
        assert found == sorted(found, reverse=True)


def test_the_length_of_a_sample_is_that_of_its_key_or_first_part():
    rows = [{"a": "x" * n, "b": "y" * (9 - n)} for n in range(1, 9)]
    assert [rows[i]["a"] for i in LengthGrouped(rows, group=8, key="a")] == ["x" * n for n in range(8, 0, -1)]
    assert [rows[i]["b"] for i in LengthGrouped(rows, group=8, key="b")] == ["y" * n for n in range(8, 0, -1)]
    pairs = [("x" * n, "y" * 20) for n in range(1, 9)]
    assert [len(pairs[i][0]) for i in LengthGrouped(pairs, group=8)] == list(range(8, 0, -1))


@given(SIZES, st.integers(1, 5))
def test_repeated_samples_come_in_a_row_and_fill_an_epoch(size, repeats):
    order = list(RepeatedAugmentation(Noisy(size), repeats))
    assert len(order) == size == len(RepeatedAugmentation(Noisy(size), repeats))
    rows = [order[start : start + repeats] for start in range(0, size, repeats)]
    assert all(len(set(row)) == 1 and [index.count for index in row] == list(range(len(row))) for row in rows)
    assert len({row[0] for row in rows}) == len(rows)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 60))
def test_drawn_samples_are_as_many_as_asked_for_and_of_weighted_ones_only(labels, size):
    data = TensorData(torch.arange(len(labels)), torch.tensor(labels))
    balanced = Balanced(data, size=size)
    shares = torch.zeros(4, dtype=torch.float64).index_add_(0, torch.tensor(labels), balanced.weights)
    assert len(list(balanced)) == len(balanced) == size
    assert torch.allclose(shares[shares > 0], torch.ones(len(set(labels)), dtype=torch.float64))
    weights = [float(label == labels[0]) for label in range(4)]
    drawn = list(Weighted(data, weights, size=size)) if len(labels) != 4 else []
    assert all(labels[index] == labels[0] for index in drawn) and len(drawn) in (0, size)
    assert len(Balanced(data)) == len(labels) == len(Weighted(data, [1.0] * len(labels)))


@given(st.integers(1, 30), st.integers(1, 40), st.booleans())
def test_a_subset_is_the_first_samples_or_those_named(size, wanted, shuffle):
    first = Subset(Noisy(size), size=wanted, shuffle=shuffle)
    assert sorted(first) == list(range(min(size, wanted))) and len(first) == min(size, wanted)
    named = list(range(0, size, 2))
    assert list(Subset(Noisy(size), indices=named)) == named


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(1, 30), st.integers(1, 7), st.integers(0, 12), st.booleans())
def test_a_pass_over_torchs_loader_resumes_at_any_position(size, batch_size, cut, own):
    def loader() -> Any:
        generator = torch.Generator().manual_seed(4) if own else None
        return DataLoader(Noisy(size), batch_size=batch_size, shuffle=True, generator=generator)  # type: ignore[arg-type]

    first = Pass(loader())
    torch.rand(3)  # somebody draws between the start of a pass and its first batch
    seen = plain(islice(first, cut))
    position, here = first.state_dict(), Snapshot.take()
    rest = plain(first)
    torch.rand(5), random.random()
    second = Pass(loader(), position)
    Snapshot.of(here.state_dict()).restore()
    assert plain(second) == rest and len(seen) + len(rest) == -(-size // batch_size)
    assert second.taken == first.taken


def test_the_classes_are_the_last_tensor_of_several():
    data = TensorDataset(torch.zeros(4), torch.arange(4), torch.tensor([0, 0, 0, 1]))
    assert Balanced(data).weights.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])
