"""Orders, shares, draws and resuming hold for any size, position and number of workers."""

from __future__ import annotations

import copy
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
from etude.data.order import Indexed, Sampled, SampledBatches, Shared, Sliced, Streamed, share_of
from etude.data.resume import Pass, Snapshot
from etude.data.samplers import Balanced, LengthGrouped, RepeatedAugmentation, Subset, Weighted
from etude.data.seeds import generators, kept_generators, mix, mix_each, seed_process, seed_python, seed_rank
from etude.dist.world import World
from etude.errors import ConfigError
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
    source = Indexed(size, batch_size, shuffle, drop_last, seed)
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
    orders = {tuple(Indexed(50, 8, True, False, seed).order(epoch).tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25
    assert Indexed(6, 2, True, False, 0).order(0).tolist() == [3, 1, 4, 2, 0, 5]  # checkpoints rely on it


@given(SIZES, SIZES, st.integers(1, 7), NUMBERS)
def test_ranks_share_a_batch_without_loss_or_repetition(size, batch_size, world, seed):
    whole = Indexed(size, batch_size, True, False, seed)
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


def test_every_rank_but_the_first_has_a_stream_of_its_own_that_goes_on_with_the_steps():
    def drawn(rank: int, step: int) -> list[float]:
        with kept_generators():
            seed_process(1)
            seed_rank(5, World(rank, 4), step)
            return [random.random(), np.random.rand(), float(torch.rand(()))]

    with kept_generators():
        seed_process(1)
        untouched = [random.random(), np.random.rand(), float(torch.rand(()))]
    assert drawn(0, 0) == drawn(0, 9) == untouched
    found = [drawn(rank, step) for rank in range(4) for step in (0, 9) if rank]
    assert len({number for numbers in [untouched, *found] for number in numbers}) == 21
    with kept_generators():
        seed_process(mix(5, 3, 9, -4))
        assert drawn(3, 9)[0] == random.random() != drawn(3, 0)[0]


DRAWS = {
    "nothing": lambda: None, "python": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(()),
    "one of a pair": lambda: (random.gauss(0, 1), np.random.randn()),
}  # fmt: skip


def standing() -> list[str]:
    """Everything that the next draws follow from, a normal number that waits among it."""
    return [repr(random.getstate()), repr(np.random.get_state(legacy=False)), repr(torch.get_rng_state().tolist())]


@pytest.mark.parametrize("inside", DRAWS)
@pytest.mark.parametrize("before", ["nothing", "one of a pair"])
def test_generators_stand_as_before_whatever_draws_in_between(before, inside):
    with np.printoptions(threshold=10_000):
        for generator in (random, np.random, torch):
            (generator.manual_seed if generator is torch else generator.seed)(3)
        DRAWS[before]()
        states = standing()
        for _ in range(2):
            with kept_generators():
                DRAWS[inside]()
                if inside == "one of a pair":
                    seed_process(4)
            assert standing() == states
            with pytest.raises(ValueError), kept_generators():
                DRAWS[inside]()
                raise ValueError
            assert standing() == states


def test_a_generator_of_numpy_that_a_program_has_put_in_place_is_kept_too():
    usual = np.random.get_bit_generator()
    try:
        np.random.set_bit_generator(np.random.PCG64(3))
        for _ in range(2):
            state = repr(np.random.get_state(legacy=False))
            with kept_generators():
                np.random.randn()
            assert repr(np.random.get_state(legacy=False)) == state
            np.random.randn()
    finally:
        np.random.set_bit_generator(usual)


@pytest.mark.parametrize("kind", ["python", "numpy", "torch"])
def test_a_generator_that_has_moved_says_so_once_and_goes_back(kind):
    generator = dict(zip(("python", "numpy", "torch"), generators(), strict=True))[kind]
    with kept_generators():
        for _ in range(2):
            generator.keep()
            assert not generator.give_back()
            first = DRAWS[kind]()
            assert generator.give_back() and not generator.give_back()
            assert DRAWS[kind]() == first
        generator.keep()
        generator.seed(1)
        generator.put_back()
        assert not generator.give_back()


def test_a_normal_number_that_numpy_holds_back_hides_no_draw():
    _, generator, _ = generators()
    with kept_generators():
        np.random.seed(3)
        pair = np.random.randn(2).tolist()
        np.random.seed(3)
        assert np.random.randn() == pair[0]
        for _ in range(2):
            generator.keep()
            assert np.random.randn() not in (0.0, pair[1]) and generator.give_back()
        assert np.random.randn() == pair[1]


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


class Holds:
    """A dataset of another package: it has ``size`` samples and some attributes."""

    def __init__(self, size: int = 4, **fields: Any) -> None:
        self.size = size
        vars(self).update(fields)

    def __len__(self) -> int:
        return self.size


@pytest.mark.parametrize(
    "fields",
    [
        {"labels": [0, 0, 0, 1]}, {"samples": [("a", 0), ("b", 0), ("c", 0), ("d", 1)]},
        {"tensors": (torch.zeros(4), torch.tensor([0, 0, 0, 1]))},
        {"labels": [0, 0, 0, 1], "tensors": (torch.arange(4),), "samples": [("a", 1)] * 4},
        {"tensors": (torch.tensor([0, 0, 0, 1]),), "samples": [("a", 1)] * 4},
        {"tensors": (), "samples": [("a", 0), ("b", 0), ("c", 0), ("d", 1)]},
    ],
)  # fmt: skip
def test_the_classes_of_a_dataset_are_found_where_it_keeps_them(fields):
    assert Balanced(Holds(**fields)).weights.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])


@pytest.mark.parametrize(
    ("weights", "works"),
    [
        ([0.25] * 4, True), ([0.0, 0.0, 0.0, 0.1], True), ([0.0] * 4, False), ([-1.0, 3.0, 3.0, 3.0], False),
        ([1.0, 1.0, 1.0], True), ([1.0, 1.0], False), ([0.0] * 3, False), ([1.0] * 5, True),
    ],
)  # fmt: skip
def test_weights_are_one_per_sample_or_class_and_make_a_distribution(weights, works):
    data = Holds(labels=[0, 1, 2, 2])
    if works:
        assert len(list(Weighted(data, weights))) == 4
    else:
        with pytest.raises(ConfigError, match=r"Weighted: (2 weights are neither|weights must not be negative)"):
            Weighted(data, weights)


@pytest.mark.parametrize(("indices", "works"), [([0, 3, 0], True), ([4], False), ([0, -1], False), ([], True)])
def test_a_subset_names_samples_that_there_are(indices, works):
    if works:
        assert list(Subset(Holds(4), indices=indices)) == indices
    else:
        with pytest.raises(ConfigError, match=rf"index {indices[-1]} is outside of the data, which has 4 samples"):
            Subset(Holds(4), indices=indices)
    assert list(Subset(Holds(4), size=0)) == []


def test_a_group_and_a_row_of_repeats_hold_at_least_one_sample():
    assert sorted(LengthGrouped(["a", "b"], group=1)) == [0, 1]
    assert {index.count for index in RepeatedAugmentation(Holds(4), repeats=1)} == {0}
    with pytest.raises(ConfigError, match="group is 0; it must be at least 1"):
        LengthGrouped(["a"], group=0)
    with pytest.raises(ConfigError, match="repeats is 0; it must be at least 1"):
        RepeatedAugmentation(Holds(4), repeats=0)


def test_the_length_of_a_mapping_is_that_of_its_longest_value():
    rows = [{"a": "x" * n, "b": "xx", "label": 7} for n in range(1, 9)]
    lengths = [max(len(rows[index]["a"]), 2) for index in LengthGrouped(rows)]
    assert lengths == [8, 7, 6, 5, 4, 3, 2, 2]
    mixed = [{"a": "x" if n % 2 else n} for n in range(20)]
    assert [index % 2 for index in LengthGrouped(mixed)] == [1] * 10 + [0] * 10


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 3), st.integers(0, 3))
def test_batches_of_a_sampler_keep_their_number_and_epoch(size, batch_size, start, epoch):
    for source in (
        Indexed(size, batch_size),
        Sampled(range(size), batch_size),
        SampledBatches([[0]] * size),
        Streamed(),
    ):
        tasks = list(islice(source.tasks(epoch, start), 3))
        assert [(task.epoch, task.batch) for task in tasks] == [(epoch, start + n) for n in range(len(tasks))]
        assert all(task.place == f"epoch {epoch + 1}, batch {task.batch + 1}" for task in tasks)
    assert len(tasks) == 3 and tasks[0].state == ("begin", start, None) and tasks[1].state is None


def test_a_sampler_hears_of_its_epoch_and_one_without_a_length_is_asked_as_batches_are_made():
    class Told:
        epoch, asked = 0, 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Any:
            for number in range(100):
                self.asked += 1
                yield 100 * self.epoch + number

    sampler = Told()
    first = next(Sampled(sampler, 4).tasks(3, 0))
    assert first.indices == [300, 301, 302, 303] and sampler.asked == 4


def test_slices_of_batches_are_a_loader_of_their_own():
    loader = DataLoader(range(6), batch_size=4)  # type: ignore[arg-type]
    sliced = copy.deepcopy(Sliced(loader, (1, 2)))
    assert (len(sliced), sliced.batch_size, sliced.shard) == (2, 4, (1, 2))
    assert [(part.tolist(), sliced.weight) for part in sliced] == [([2, 3], 1.0), ([5], 1.0)]
    assert [part.tolist() for part in Sliced([torch.arange(3)], (0, 2))] == [[0]]
    with pytest.raises(AttributeError):
        Sliced.__new__(Sliced).loader
