"""The loader: order, draws, position, and what it does when the data misbehave."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.cli import _report
from etude.data.collate import Lists, Mixup, Pad, stack
from etude.data.datasets.digits import Digits
from etude.data.datasets.tensors import TensorData
from etude.data.fetch import Fetcher, StreamFetcher, never_draws, offers
from etude.data.fingerprint import fingerprint_of
from etude.data.loader import Loader
from etude.data.order import Task
from etude.data.samplers import Balanced, Subset
from etude.data.seeds import COLLATE, kept_generators, mix, seed_process
from etude.data.transforms import Transformed
from etude.errors import ConfigError, DataError
from tests import zygote
from tests.data.conftest import Broken, Deadly, Noisy, NoisyStream, StatefulStream
from tests.places import REPOSITORY
from tests.sampling import examples


def plain(batches) -> list:
    return [
        [part.tolist() for part in batch] if isinstance(batch, list | tuple) else batch.tolist() for batch in batches
    ]


def epochs(loader: Loader, count: int = 2) -> list:
    return [plain(loader) for _ in range(count)]


@settings(max_examples=examples(60))
@given(
    size=st.integers(1, 50),
    batch_size=st.integers(1, 12),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 9),
)
def test_an_epoch_holds_every_sample_once_and_can_start_anywhere(size, batch_size, shuffle, drop_last, seed, epoch):
    options = {"batch_size": batch_size, "shuffle": shuffle, "drop_last": drop_last, "seed": seed}
    if drop_last and size < batch_size:
        with pytest.raises(ConfigError):
            Loader(TensorData(torch.arange(size)), **options)
        return
    loader = Loader(TensorData(torch.arange(size)), **options)
    loader.set_epoch(epoch)
    whole = plain(loader)
    assert len(whole) == len(loader)
    seen = [index for batch in whole for index in batch]
    assert len(set(seen)) == len(seen) == (size // batch_size * batch_size if drop_last else size)
    for start in range(len(whole) + 1):
        again = Loader(TensorData(torch.arange(size)), **options)
        again.load_state_dict({"epoch": epoch, "batch": start, "samples": size})
        again.set_epoch(epoch)
        assert plain(again) == whole[start:]


@settings(max_examples=examples(40))
@given(size=st.integers(1, 40), batch_size=st.integers(1, 6), world=st.integers(1, 5))
def test_shares_make_up_the_batches_of_one_process(size, batch_size, world):
    def loader(shard: tuple[int, int]) -> Loader:
        return Loader(TensorData(torch.arange(size)), batch_size=batch_size * world, shuffle=True, shard=shard)

    def shares(shard: tuple[int, int]) -> list[tuple[list[int], float]]:
        own = loader(shard)
        return [(batch.tolist(), own.weight) for batch in own]

    whole = plain(loader((0, 1)))
    for batch, parts in zip(whole, zip(*[shares((rank, world)) for rank in range(world)], strict=True), strict=True):
        assert [index for part, weight in parts if weight for index in part] == batch
        assert sum(weight for _, weight in parts) == pytest.approx(world)
        assert all(weight == pytest.approx(len(part) * world / len(batch)) for part, weight in parts if weight)


def test_a_stream_and_a_sampler_are_shared_too():
    def shares(shard: tuple[int, int], **options) -> list[tuple[list, float]]:
        own = Loader(**options, batch_size=3, seed=1, shard=shard)
        return [([part.tolist() for part in batch], own.weight) for batch in own]

    for options in ({"dataset": NoisyStream()}, {"dataset": Noisy(), "sampler": [5, 3, 1, 2, 4]}):
        whole = [batch for batch, _ in shares((0, 1), **options)]
        for batch, parts in zip(
            whole, zip(*[shares((rank, 2), **options) for rank in range(2)], strict=True), strict=True
        ):
            own = [part for part, weight in parts if weight]
            assert [[item for part in columns for item in part] for columns in zip(*own, strict=True)] == batch


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(ConfigError, match="cannot be shared among 4 processes"):
        Loader(TensorData(torch.arange(9)), batch_size=2, shard=(0, 4))
    with pytest.raises(ConfigError, match="has no length"):
        Loader(Noisy(), sampler=iter([1, 2]), batch_size=2, shard=(0, 2))


def test_epochs_differ_and_follow_one_another_or_set_epoch():
    loader = Loader(TensorData(torch.arange(30)), batch_size=30, shuffle=True)
    first, second = epochs(loader)
    assert first != second
    loader.set_epoch(0)
    assert plain(loader) == first


@pytest.mark.parametrize("dataset", [Noisy(), NoisyStream(), Digits("val")], ids=["map", "stream", "memory"])
def test_batches_do_not_depend_on_the_number_of_workers(dataset):
    def read(workers: int) -> list:
        loader = Loader(dataset, batch_size=3, shuffle=not isinstance(dataset, NoisyStream), workers=workers, seed=5)
        try:
            return epochs(loader)
        finally:
            loader.close()

    assert read(0) == read(2)


def test_the_generators_of_the_run_are_left_alone():
    def draws(workers: int, read: bool) -> tuple[float, float, float]:
        random.seed(1), np.random.seed(1), torch.manual_seed(1)
        if read:
            loader = Loader(Noisy(), batch_size=4, shuffle=True, workers=workers)
            list(loader)
            loader.close()
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    assert draws(0, False) == draws(0, True) == draws(2, True)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_sample_draws_is_kept_when_an_epoch_is_continued(workers):
    whole = epochs(Loader(Noisy(), batch_size=4, shuffle=True, seed=3))
    loader = Loader(Noisy(), batch_size=4, shuffle=True, seed=3, workers=workers)
    list(loader)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 2)
    loader.close()
    again = Loader(Noisy(), batch_size=4, shuffle=True, seed=3, workers=workers)
    again.load_state_dict(state)
    assert plain(again) == whole[1][2:]
    again.close()


def test_an_epoch_that_was_broken_off_leaves_nothing_behind():
    loader = Loader(Noisy(), batch_size=2, workers=2)
    whole = plain(loader)
    next(iter(loader))
    loader.set_epoch(0)
    assert plain(loader) == whole
    loader.close()


@pytest.mark.parametrize("kind", [NoisyStream, StatefulStream])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_continues_where_it_stood(kind, workers):
    whole = plain(Loader(kind(), batch_size=3))
    loader = Loader(kind(), batch_size=3, workers=workers)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    loader.close()
    again = Loader(kind(), batch_size=3, workers=workers)
    again.load_state_dict(state)
    assert plain(again) == whole[2:]
    again.close()


@given(st.integers(0, 9), st.integers(0, 9))
def test_an_epoch_ends_after_so_many_batches_wherever_it_begins(limit, start):
    whole = [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    loader = Loader(TensorData(torch.arange(9)), batch_size=2, limit=limit)
    assert len(loader) == min(limit, 5)
    loader.load_state_dict({"epoch": 3, "batch": start})
    assert plain(loader) == whole[start:limit]
    assert loader.state_dict() | {"epoch": 4, "batch": 0} == loader.state_dict()
    assert plain(loader) == whole[:limit]


def test_a_stream_has_no_length_and_no_order():
    with pytest.raises(TypeError):
        len(Loader(NoisyStream(), batch_size=2))
    with pytest.raises(ConfigError, match="own order"):
        Loader(NoisyStream(), batch_size=2, shuffle=True)


class Whole:
    """Answers for whole batches: with a batch if ``batched``, else with a list of samples."""

    def __init__(self, batched: bool) -> None:
        self.batched, self.calls = batched, 0

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int):
        raise AssertionError("taken sample by sample")

    def __getitems__(self, indices: list[int]):
        self.calls += 1
        return {"x": torch.tensor(indices)} if self.batched else [{"x": index} for index in indices]


@pytest.mark.parametrize("batched", [True, False])
def test_getitems_is_asked_once_per_batch(batched):
    dataset = Whole(batched)
    assert [batch["x"].tolist() for batch in Loader(dataset, batch_size=4)] == [[0, 1, 2, 3], [4, 5]]
    assert dataset.calls == 2


def test_getitems_that_fails_where_samples_do_not_is_warned_of():
    class Half(Whole):
        def __getitem__(self, index: int):
            return {"x": index}

        def __getitems__(self, indices: list[int]):
            raise KeyError("no batch")

    with pytest.warns(
        UserWarning, match=r"Half.__getitems__ raised KeyError: 'no batch'; the batch was read sample by"
    ):
        assert [batch["x"].tolist() for batch in Loader(Half(True), batch_size=4)] == [[0, 1, 2, 3], [4, 5]]


def test_samplers_of_the_user_are_drawn_from_seed_and_epoch():
    weights = torch.utils.data.WeightedRandomSampler([1.0] * 20, 10)
    batches = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(range(20)), 4, False)
    for options in ({"sampler": weights, "batch_size": 4}, {"batch_sampler": batches}):
        first = epochs(Loader(Noisy(), **options, seed=1))
        torch.manual_seed(99)
        assert epochs(Loader(Noisy(), **options, seed=1)) == first
        assert epochs(Loader(Noisy(), **options, seed=2)) != first


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_sample_is_named(workers, capsys):
    loader = Loader(Broken(), batch_size=2, workers=workers)
    with pytest.raises(DataError, match=r"sample 7 \(epoch 1, batch 4\): ValueError: torn file") as caught:
        list(loader)
    loader.close()
    assert _report(caught.value) == 5
    said = capsys.readouterr().err
    assert "Traceback" in said and "in __getitem__" in said and "in _guarded" not in said  # of the user's code alone
    assert ("in a data worker" in said) == (workers > 0)
    assert said.endswith("etude: error: sample 7 (epoch 1, batch 4): ValueError: torn file\n")


def test_a_failure_is_told_with_the_lines_of_the_user_alone():
    for made in (
        Fetcher(Broken())(Task(0, 1, [7])),
        StreamFetcher(TornStream(), batch_size=1)(Task(0, 0, state=("begin", 0, None))),
    ):
        assert "torn file" in made.failure and made.details.startswith("Traceback")
        assert 'raise ValueError("torn file")' in made.details and "_guarded" not in made.details


class TornStream:
    def __iter__(self):
        raise ValueError("torn file")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_sample_is_skipped_replaced_or_tried_again(workers):
    def read(policy: str, times: int = 10**9) -> list:
        loader = Loader(Broken(times=times), batch_size=20, on_bad_sample=policy, workers=workers)
        try:
            return plain(loader)[0]
        finally:
            loader.close()

    assert read("skip") == [index for index in range(20) if index != 7]
    assert len(read("replace")) == 20 and 7 not in read("replace")
    assert read("retry", times=3) == list(range(20))
    with pytest.raises(DataError, match="sample 7"):
        read("retry")


def test_bad_samples_are_bounded():
    loader = Loader(Broken(), batch_size=20, on_bad_sample="skip", bad_samples=1)
    list(loader)
    with pytest.raises(DataError, match="2 bad samples, 1 are allowed"):
        list(loader)


def test_a_batch_without_any_good_sample_stops():
    with pytest.raises(DataError, match="no sample of epoch 1, batch 8"):
        list(Loader(Broken(), batch_size=1, on_bad_sample="skip"))


@pytest.mark.parametrize(("how", "says"), [("kill", "killed by SIGKILL.*memory"), ("exit", "exit code 3")])
def test_a_worker_that_dies_is_named_at_once(tmp_path, how, says):
    loader = Loader(Deadly(tmp_path, how), batch_size=2, workers=2, timeout=1e6)
    with pytest.raises(DataError, match=rf"data worker 0 \(pid \d+\) .*{says}"):
        list(loader)
    loader.close()


def test_a_worker_can_be_restarted_and_does_the_same_work_again(tmp_path):
    want = plain(Loader(Deadly(tmp_path, "hang"), batch_size=2)) if (tmp_path / "died").touch() is None else None
    (tmp_path / "died").unlink()
    loader = Loader(Deadly(tmp_path, "kill"), batch_size=2, workers=2, restarts=1)
    assert plain(loader) == want
    loader.close()


def test_a_worker_that_hangs_is_named_after_the_deadline(tmp_path):
    loader = Loader(Deadly(tmp_path, "hang"), batch_size=2, workers=1)
    batches = iter(loader)
    next(batches), next(batches)  # however long the worker takes to start
    loader._pool.deadline = 1.0
    with pytest.raises(DataError, match="has not made epoch 1, batch 3 within 1 s"):
        next(batches)
    loader.close()


def test_workers_end_when_the_loader_is_closed():
    loader = Loader(Noisy(), batch_size=2, workers=2)
    list(loader)
    pids = [worker.process.pid for worker in loader._pool.workers]
    loader.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dataset": TensorData(torch.empty(0))}, "is empty"),
        ({"dataset": Noisy(3), "batch_size": 4, "drop_last": True}, "3 samples do not fill one batch of 4"),
        ({"dataset": Noisy(), "batch_size": 0}, "at least one sample"),
        ({"dataset": Noisy(), "workers": -1}, "negative"),
        ({"dataset": Noisy(), "shuffle": True, "sampler": [1]}, "contradict"),
        ({"dataset": Noisy(), "on_bad_sample": "skp"}, "did you mean 'skip'"),
        ({"dataset": object()}, "no __getitem__ or __iter__"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_batch(options, says):
    dataset = options.pop("dataset")
    with pytest.raises(ConfigError, match=says) as caught:
        Loader(dataset, **options, at="train.yaml:4")
    assert "train.yaml:4" in str(caught.value) or "skip" in says


def test_a_position_in_other_data_is_refused():
    loader = Loader(Noisy(20), batch_size=4)
    state = loader.state_dict()
    changed = Loader(Noisy(21), batch_size=4)
    with pytest.raises(ConfigError, match="21 samples, the checkpoint was made with 20"):
        changed.load_state_dict(state)
    changed.allow_change = True
    changed.load_state_dict(state)


def test_data_with_another_fingerprint_are_refused():
    class Versioned(Noisy):
        version = "a"

        def fingerprint(self) -> str:
            return self.version

    loader = Loader(Versioned(20), batch_size=4)
    state = loader.state_dict()
    loader.load_state_dict(state)
    Versioned.version = "b"
    later = Loader(Versioned(20), batch_size=4)
    with pytest.raises(ConfigError, match="its fingerprint is b, not a; --allow-change data"):
        later.load_state_dict(state)
    later.allow_change = True
    later.load_state_dict(state)


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: Transformed(data, abs)])
def test_other_numbers_in_memory_are_other_data(wrap):
    rows = torch.randn(20, 3, dtype=torch.bfloat16)
    state = Loader(wrap(TensorData(rows)), batch_size=4).state_dict()
    Loader(wrap(TensorData(rows.clone())), batch_size=4).load_state_dict(state)
    rows[19, 2] += 1
    with pytest.raises(ConfigError, match="another one than the checkpoint was made with"):
        Loader(wrap(TensorData(rows)), batch_size=4).load_state_dict(state)


def test_the_samples_of_the_last_batch_can_be_told():
    for workers in (0, 2):
        loader = Loader(TensorData(torch.arange(10)), batch_size=3, shuffle=True, workers=workers)
        told = [(loader.sample_ids(), batch.tolist()) for batch in loader]
        loader.close()
        assert len(told) == 4 and all(ids == samples for ids, samples in told)


def test_batches_are_moved_one_ahead_and_counted_when_handed_out():
    loader = Loader(TensorData(torch.arange(6)), batch_size=2, device="meta")
    iterator = iter(loader)
    assert next(iterator).device.type == "meta"
    assert loader.state_dict()["batch"] == 1
    assert len(list(iterator)) == 2


def test_workers_end_with_the_run_that_started_them():
    code = """
import os, signal
from etude.data.loader import Loader
from tests.data.conftest import Noisy
loader = Loader(Noisy(), batch_size=2, workers=2)
next(iter(loader))
print(*(worker.process.pid for worker in loader._pool.workers), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = REPOSITORY
    ended = zygote.run("-c", code, cwd=root)
    assert ended.returncode == -signal.SIGKILL
    waiting = {int(pid) for pid in ended.stdout.split()}
    assert len(waiting) == 2
    limit = time.monotonic() + zygote.PATIENCE
    while waiting := {pid for pid in waiting if running(pid)}:
        assert time.monotonic() < limit
        time.sleep(0.01)


def running(pid: int) -> bool:
    """Whether a process does anything; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_samplers_balance_classes_and_choose_samples():
    data = TensorData(torch.arange(100), torch.tensor([0] * 90 + [1] * 10))
    drawn = torch.cat([labels for _, labels in Loader(data, batch_size=50, sampler=Balanced(data, 1000))])
    assert 400 < int(drawn.sum()) < 600
    some = Loader(data, batch_size=10, sampler=Subset(data, size=3))
    assert plain(some)[0][0] == [0, 1, 2]
    shuffled = Loader(data, batch_size=10, sampler=Subset(data, indices=[5, 6, 7, 8, 9], shuffle=True))
    first, second = plain(shuffled), plain(shuffled)
    assert sorted(first[0][0]) == [5, 6, 7, 8, 9] and first != second
    with pytest.raises(ConfigError, match="outside of the data"):
        Subset(data, indices=[100])
    with pytest.raises(ConfigError, match="either"):
        Subset(data)
    with pytest.raises(ConfigError, match="does not provide its labels"):
        Balanced(Noisy())


class Sequences:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict:
        return {"text": torch.arange(index + 1), "label": index}


def test_samples_are_padded_listed_or_mixed():
    (padded,) = Loader(Sequences(), batch_size=3, collate=Pad(-1))
    assert padded["text"].tolist() == [[0, -1, -1], [0, 1, -1], [0, 1, 2]] and padded["label"].tolist() == [0, 1, 2]
    (listed,) = Loader(Sequences(), batch_size=3, collate=Lists())
    assert [text.tolist() for text in listed["text"]] == [[0], [0, 1], [0, 1, 2]]
    mixing = Loader(Digits("val"), batch_size=360, collate=Mixup(10))
    (first,), (second,) = list(mixing), list(mixing)
    assert torch.allclose(first[1].sum(1), torch.ones(360)) and not torch.equal(first[0], second[0])
    mixing.set_epoch(0)
    (again,) = mixing
    assert torch.equal(again[0], first[0])


def test_an_endless_sampler_that_claims_a_length_gives_epochs_of_that_length():
    class Endless:
        def __len__(self) -> int:
            return 5

        def __iter__(self):
            return itertools.cycle(range(5))

    loader = Loader(TensorData(torch.arange(5)), batch_size=2, sampler=Endless())
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]


class DrawsLate:
    """Draws only for some samples, after many that do not: from each generator in turn."""

    def __init__(self, draw) -> None:
        self.draw, self.calls = draw, 0

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int):
        self.calls += 1
        return index, self.draw() if index in (50, 51, 90) else 0.0


DRAWS = {
    "python": random.random,
    "numpy": lambda: float(np.random.standard_normal()),
    "torch": lambda: float(torch.rand(())),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_dataset_that_draws_late_draws_the_same_as_one_that_is_asked_for_it_first(draw):
    def drawn(dataset, **options) -> dict[int, float]:
        batches = list(Loader(dataset, batch_size=8, seed=3, **options))
        pairs = [pair for indices, values in batches for pair in zip(indices.tolist(), values.tolist(), strict=True)]
        return {index: value for index, value in pairs if value}

    class Reversed:
        def __iter__(self):
            return iter(range(95, -1, -1))

        def __len__(self) -> int:
            return 96

    np.random.standard_normal()  # a second number is kept back by numpy and must not be handed out
    before = random.random(), float(np.random.rand()), float(torch.rand(()))
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    dataset = DrawsLate(draw)
    first = drawn(dataset)
    assert set(first) == {50, 51, 90} and len(set(first.values())) == 3
    assert drawn(DrawsLate(draw), sampler=Reversed()) == first == drawn(DrawsLate(draw), workers=2)
    assert dataset.calls == 96 + 8, "only the batch that gave it away is made twice"
    assert all(before) and states[0] == random.getstate() and states[1] == np.random.get_state()[1].tolist()
    assert torch.equal(states[2], torch.get_rng_state())


def test_only_the_generators_that_a_dataset_draws_from_are_seeded():
    class OnlyTorch(Noisy):
        def __getitem__(self, index: int):
            return index, float(torch.rand(()))

    loader = Loader(OnlyTorch(), batch_size=4, shuffle=True, seed=2)
    first = epochs(loader)
    assert [seed.__name__ for seed in loader._make._seeders] == ["seed_torch"]
    assert first == epochs(Loader(OnlyTorch(), batch_size=4, shuffle=True, seed=2))


def test_a_stream_that_draws_its_order_when_it_begins_has_the_same_one_with_any_number_of_workers():
    class Mixed(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(torch.randperm(12).tolist())

    def read(workers: int) -> list:
        loader = Loader(Mixed(), batch_size=5, workers=workers)
        try:
            return epochs(loader)
        finally:
            loader.close()

    first, second = read(0)
    assert first != second and [first, second] == read(1)


@pytest.mark.parametrize(
    "samples",
    [
        [(torch.zeros(2), 1), (torch.ones(2), 2)],
        [(1, 2.5), (3, 4.0)],
        [(1,), (2.5,)],
        [(True,), (False,)],
        [(1,), (True,)],
        [(2**63,), (1,)],
        [({"a": 1}, "x"), ({"a": 2}, "y")],
        [{"a": 1}, {"a": 2}],
        [np.zeros(2), np.ones(2)],
        [(1, 2), (3,)],
        [(np.int32(1),), (np.int32(2),)],
    ],
)
def test_samples_are_stacked_as_torch_does(samples):
    def stacked(how):
        try:
            return how(samples)
        except (RuntimeError, ValueError) as error:
            return type(error), str(error)

    ours, theirs = stacked(stack), stacked(torch.utils.data.default_collate)
    assert repr(ours) == repr(theirs)
    if isinstance(theirs, list):
        assert [getattr(x, "dtype", 0) for x in ours] == [getattr(x, "dtype", 0) for x in theirs]


class NoisyDigits(Digits):
    """Overrides the samples of a dataset that is taken by whole batches and never draws."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.rand(()), y


@pytest.mark.parametrize("workers", [0, 1])
def test_a_subclass_that_overrides_samples_is_asked_for_them_and_seeded(workers):
    plain = [x for x, _ in Loader(Digits("train"), batch_size=64, seed=1, workers=workers)]
    first, again = (
        [x for x, _ in Loader(NoisyDigits("train"), batch_size=64, seed=1, workers=workers)] for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    moved = first[0].flatten(1) - plain[0].flatten(1)
    assert (moved.amax(1) - moved.amin(1)).max() < 1e-6 and moved[:, 0].unique().numel() == 64


class Noise:
    """A mixin: changes the samples of a dataset that also gives whole batches."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.rand(()), y


class MixedDigits(Noise, Digits):
    pass


class FetchesAgain(NoisyDigits):
    def fetch(self, indices):
        return [sample + 1 for sample in super().fetch(indices)]


class SaysSo(NoisyDigits):
    deterministic = True


class Table:
    """Knows of itself alone whether it draws."""

    def __init__(self, deterministic: bool) -> None:
        self.deterministic = deterministic

    def __getitem__(self, index):
        return index


class NoisyTable(Table):
    def __getitem__(self, index):
        return index + float(torch.rand(()))


@pytest.mark.parametrize(
    ("dataset", "by_batch", "calm"),
    [
        (Digits("val"), True, True), (NoisyDigits("val"), False, False), (MixedDigits("val"), False, False),
        (FetchesAgain("val"), True, False), (SaysSo("val"), False, True), (Table(True), False, True),
        (Table(False), False, False), (NoisyTable(True), False, False), ([1, 2], False, False),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_a_class_says_of_its_samples_is_not_said_of_those_of_a_subclass_or_mixin(dataset, by_batch, calm):
    assert offers(dataset, "fetch") == by_batch and never_draws(dataset) == calm


def test_a_method_that_a_dataset_was_given_makes_its_batches():
    dataset = Table(True)
    dataset.fetch = lambda indices: indices * 2
    assert offers(dataset, "fetch") and not offers(dataset, "__getitems__")
    dataset.fetch = None
    assert not offers(dataset, "fetch")


def test_a_dataset_is_told_each_epoch_once_before_its_first_sample():
    class Told(Noisy):
        def __init__(self) -> None:
            super().__init__()
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

        def __getitem__(self, index: int) -> int:
            return self.epochs[-1]

    loader = Loader(Told(), batch_size=8)
    assert epochs(loader) == [[[0] * 8, [0] * 8, [0] * 4], [[1] * 8, [1] * 8, [1] * 4]]
    loader.set_epoch(5)
    assert plain(loader)[0] == [5] * 8 and loader.dataset.epochs == [0, 1, 5]


@pytest.mark.parametrize("dataset", [list(range(40)), Noisy(40), NoisyStream(40)], ids=["calm", "noisy", "stream"])
def test_what_a_collate_function_draws_follows_from_seed_epoch_and_batch(dataset):
    loader = Loader(dataset, batch_size=4, seed=7, collate=lambda samples: [random.random(), torch.rand(())])
    loader.set_epoch(2)

    def expected(batch: int) -> list[float]:
        with kept_generators():
            seed_process(mix(7, 2, COLLATE, batch))
            return [random.random(), torch.rand(())]

    assert list(loader) == [expected(batch) for batch in range(10)]


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([torch.tensor(1.0), torch.zeros(2), torch.tensor(2.0)], "sample 1 is 2, others are a number"),
        ([1, None, 2], "returned None for sample 1; a sample is a tensor, a number"),
        ([np.float32(1), "x", np.float32(1)], "sample 1 is str, others are a number"),
        ([{"a": np.zeros((2, 3)), "b": 1}] * 2 + [{"a": np.zeros((2, 4)), "b": 1}],
         "sample 2 is {a: 2×4, b: int}, others are {a: 2×3, b: int}"),
        ([(0,) * 8, (0.5,), (0,) * 8], rf"sample 1 is \(float\), others are \({', '.join(['int'] * 8)}\)"),
        ([(0,) * 9, (0,), (0,) * 9], rf"sample 1 is \(int\), others are \({', '.join(['int'] * 8)}, …\)"),
        ([(0,) * 9, (0,) * 10, (0,) * 9], "^epoch 1, batch 1: RuntimeError: each element in list of batch"),
        ([(1, object())] * 3, r"returned \(int, object\) for sample 0; a sample is"),
    ],
)  # fmt: skip
def test_the_forms_of_samples_that_make_no_batch_are_told(samples, says):
    with pytest.raises(DataError, match=says) as caught:
        list(Loader(samples, batch_size=3))
    assert isinstance(caught.value.__cause__, RuntimeError | TypeError | AttributeError)
    with pytest.raises(DataError, match=says.replace("^epoch 1, batch 1:", "samples from 0 .*:")) as caught:
        list(Loader(Items(samples), batch_size=3))
    assert isinstance(caught.value.__cause__, RuntimeError | TypeError | AttributeError)


class Items(torch.utils.data.IterableDataset):
    """A stream of what a list holds."""

    def __init__(self, items: list) -> None:
        self.items = items

    def __iter__(self):
        return iter(self.items)


def test_no_sample_is_blamed_for_a_batch_that_another_was_left_out_of():
    class Torn(Noisy):
        def __getitem__(self, index):
            if index == 1:
                raise ValueError("torn file")
            return torch.zeros(3 if index == 2 else 2)

    with pytest.raises(DataError, match=r"^epoch 1, batch 1: RuntimeError: stack expects each tensor"):
        list(Loader(Torn(5), batch_size=5, on_bad_sample="skip"))


def test_a_stream_that_can_only_tell_its_position_is_read_again_from_the_beginning():
    class Tells(NoisyStream):
        def state_dict(self) -> dict[str, int]:
            raise AssertionError("asked in vain")

    whole, loader = plain(Loader(Tells(), batch_size=3)), Loader(Tells(), batch_size=3)
    next(iter(loader))
    again = Loader(Tells(), batch_size=3)
    again.load_state_dict(loader.state_dict())
    assert plain(again) == whole[1:]


@pytest.mark.parametrize(("shard", "sample"), [((0, 2), 8), ((1, 2), 12), ((1, 3), 13)])
def test_a_sample_of_a_stream_that_does_not_fit_is_named_in_every_share(shard, sample):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return (torch.zeros(3 if number == sample else 2) for number in range(18))

    loader = Loader(Stream(), batch_size=9 if shard[1] == 3 else 8, shard=shard)
    with pytest.raises(DataError, match=rf"epoch 1, batch 2 .* sample {sample} is 3"):
        list(loader)


class Counted(Broken):
    """Counts how often each sample is asked for; those of ``bad`` are torn."""

    def __init__(self, bad=range(20), times: int = 10**9) -> None:
        super().__init__(times=times)
        self.bad, self.asked = bad, []

    def __getitem__(self, index: int) -> int:
        self.asked.append(index)
        self.which = index if index in self.bad else -1
        return super().__getitem__(index)


def test_a_bad_sample_is_replaced_by_ones_that_seed_epoch_and_index_choose():
    def asked(retries: int, seed: int = 4) -> list[int]:
        data = Counted()
        loader = Loader(data, batch_size=1, on_bad_sample="replace", retries=retries, seed=seed, sampler=[7])
        loader.set_epoch(2)
        with pytest.raises(DataError, match=r"sample 7 \(epoch 3, batch 1\): ValueError: torn file"):
            list(loader)
        return data.asked

    assert asked(3) == [7, *(mix(4, 2, 7, attempt) % 20 for attempt in (1, 2, 3))]
    assert asked(0) == [7] and asked(9, seed=5)[1:] != asked(9)[1:]


@pytest.mark.parametrize(("times", "retries", "works"), [(1, 1, True), (2, 1, False), (1, 0, False), (0, 0, True)])
def test_a_bad_sample_is_tried_again_so_many_times(times, retries, works):
    data = Counted(bad=[7], times=times)
    loader = Loader(data, batch_size=1, on_bad_sample="retry", retries=retries, sampler=[7])
    if works:
        assert plain(loader) == [[7]] and loader.bad == times
    else:
        with pytest.raises(DataError, match="sample 7"):
            list(loader)
    assert data.asked == [7] * (min(times, retries) + 1)


@pytest.mark.parametrize("method", ["fetch", "__getitems__"])
def test_a_bad_sample_of_a_whole_batch_is_found_and_left_out(method):
    def whole(self, indices):
        if 7 in list(indices):
            raise OSError("torn batch")
        return torch.as_tensor(indices) * 10

    kind = type("Whole", (Counted,), {method: whole})
    loader = Loader(kind(bad=[7]), batch_size=5, on_bad_sample="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plain(loader)[:2] == [[0, 10, 20, 30, 40], [5, 6, 8, 9]] and loader.bad == 1


def test_a_list_from_getitems_is_a_batch_unless_it_has_an_item_for_every_sample():
    class Columns(Noisy):
        def __getitems__(self, indices):
            return [indices, [index * 10 for index in indices]]

    columns = [[[0, 1, 2], [0, 10, 20]], [[3], [30]]]
    assert list(Loader(Columns(4), batch_size=3)) == columns
    assert [[part.tolist() for part in batch] for batch in Loader(Columns(2), batch_size=2)] == [[[0, 0], [1, 10]]]


def test_samples_that_are_named_by_words_draw_by_their_names():
    class Named:
        def __getitem__(self, name):
            return random.random(), float(torch.rand(()))

    names = ["a", "b", ("c", 1), "dd", "e", "f", 7, -7]

    def expected(name) -> list[float]:
        number = name if isinstance(name, int) else mix(*repr(name).encode())
        with kept_generators():
            seed_process(mix(3, 0, number))
            return [random.random(), float(torch.rand(()))]

    found = [part.tolist() for part in next(iter(Loader(Named(), batch_size=8, sampler=names, seed=3)))]
    assert found == [list(column) for column in zip(*map(expected, names), strict=True)]
    assert len(set(found[0])) == 8


def test_what_a_stream_raises_is_told_with_its_place():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from range(5)
            raise ValueError("torn stream")

    loader = Loader(Stream(), batch_size=3, workers=0)
    with pytest.raises(DataError, match=r"^samples from 3 \(epoch 1, batch 2\): ValueError: torn stream"):
        list(loader)


def test_a_stream_is_read_by_one_worker_and_its_samples_have_no_names():
    loader = Loader(NoisyStream(), batch_size=2, workers=5)
    assert loader.workers == 1 and loader.sample_ids() == [] and Loader(NoisyStream(), workers=0).workers == 0
    assert Loader(list(range(9)), batch_size=4).sample_ids() == [0, 1, 2, 3]


def test_a_batch_of_all_samples_or_ranks_is_large_enough(caplog):
    whole = Loader(TensorData(torch.arange(4)), batch_size=4, shuffle=True, drop_last=True, shard=(3, 4))
    assert len(plain(whole)[0]) == 1 and not caplog.text
    Loader(TensorData(torch.arange(3)), batch_size=4)
    assert not caplog.text


def test_a_batch_sampler_of_any_size_is_shared_if_it_has_a_length():
    shares = [plain(Loader(list(range(6)), batch_sampler=[[0, 1, 2], [3, 4]], shard=(rank, 2))) for rank in range(2)]
    assert shares == [[[0], [3]], [[1, 2], [4]]]
    with pytest.raises(ConfigError, match="the sampler list_iterator has no length"):
        Loader(list(range(6)), batch_sampler=iter([[0, 1]]), shard=(0, 2))


def test_a_dataset_around_another_has_the_fingerprint_of_that_one_and_of_its_own_data():
    inner = torch.utils.data.TensorDataset(torch.arange(3))
    around = type("Around", (), {})()
    around.dataset = inner
    assert fingerprint_of(around) == fingerprint_of(inner) != ""
    marks = {fingerprint_of(torch.utils.data.Subset(inner, indices)) for indices in ([0], [1], [0, 1])}
    assert len(marks | {fingerprint_of(inner), ""}) == 5
    odd = type("Odd", (), {})()
    odd.dataset = odd
    assert fingerprint_of(odd) == "" == fingerprint_of(object())


def test_a_loader_that_is_rewound_begins_its_epoch_again():
    def begun() -> Loader:
        return Loader(list(range(10)), batch_size=2, shuffle=True)

    whole, loader = [batch.tolist() for batch in begun()], begun()
    list(itertools.islice(iter(loader), 2))
    resumed, rewound = begun(), begun()
    for other in (resumed, rewound):
        other.load_state_dict(loader.state_dict())
    rewound.rewind()
    assert rewound.state_dict() == begun().state_dict() != resumed.state_dict()
    assert [batch.tolist() for batch in resumed] == whole[2:] and [batch.tolist() for batch in rewound] == whole


@pytest.mark.parametrize("method", ["fetch", "__getitems__"])
def test_a_batch_that_a_data_set_fetches_as_a_whole_draws_by_its_epoch_and_first_sample(method):
    class Noise:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            raise AssertionError

    setattr(Noise, method, lambda self, indices: torch.rand(len(indices)))

    def noise(epoch: int = 0, **options) -> list[list[float]]:
        loader = Loader(Noise(), **({"batch_size": 2, "seed": 3} | options))
        loader.set_epoch(epoch)
        return [batch.tolist() for batch in loader]

    first = noise()
    assert first == noise() and len({tuple(batch) for batch in first + noise(epoch=1) + noise(seed=4)}) == 9
    assert noise(sampler=[2, 3, 0, 5]) == [first[1], first[0]]
    assert [batch[0] for batch in noise(batch_size=1)][::2] == [batch[0] for batch in first]
