from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

from etude import Trainer
from etude.core.run import Run
from etude.data.resume import Replay, Snapshot, own_generators, own_states, restore_own


class Noisy(torch.utils.data.Dataset[Any]):
    """Draws from three generators of the process, as many datasets do."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(index)) + torch.rand(3) + random.random() + np.random.rand(), index % 2


def seeded(loader: Any) -> Replay:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    return Replay(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_rest_of_an_epoch_is_the_same_after_a_resume(workers: int) -> None:
    def loader() -> DataLoader[Any]:
        return DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)

    whole = seeded(loader())
    batches = iter(whole)
    for _ in range(2):
        next(batches)
    position, generators = whole.state_dict(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    rest = [batch[0] for batch in batches]

    later = seeded(loader())
    later.load_state_dict(position)
    random.setstate(generators[0])
    np.random.set_state(generators[1])
    torch.set_rng_state(generators[2])
    again = [batch[0] for batch in later]
    assert len(again) == 3 and all(torch.equal(a, b) for a, b in zip(rest, again, strict=True))


def test_a_list_of_batches_goes_on_where_it_stood() -> None:
    loader = Replay([1, 2, 3, 4])
    batches = iter(loader)
    next(batches)
    other = Replay([1, 2, 3, 4])
    other.load_state_dict(loader.state_dict())
    assert list(other) == [2, 3, 4] and list(other) == [1, 2, 3, 4] and len(other) == 4


def test_a_position_is_kept_for_its_own_epoch_alone() -> None:
    class Told(list[int]):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    loader = Replay(Told([1, 2, 3, 4]))
    assert loader.state_dict() == {"epoch": 0, "pass": None}
    loader.set_epoch(2)
    next(iter(loader))
    state = copy.deepcopy(loader.state_dict())
    assert state["epoch"] == 2 == loader.epoch and state["pass"]["taken"] == 1

    def resumed() -> Replay:
        other = copy.deepcopy(Replay(Told([1, 2, 3, 4])))
        other.load_state_dict(state)
        assert other.state_dict() == state
        return other

    same, other, rewound = resumed(), resumed(), resumed()
    same.set_epoch(2)
    other.set_epoch(3)
    rewound.rewind()
    assert [list(one) for one in (same, other, rewound)] == [[2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]
    assert (same.epoch, other.epoch) == (2, 3)
    Replay([1]).set_epoch(1)  # a loader that does not want to know
    with pytest.raises(AttributeError):
        Replay.__new__(Replay).loader


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are devices whose states would be restored")
def test_states_of_devices_that_are_not_here_are_carried_and_left_alone() -> None:
    here = Snapshot.take()
    assert here.cuda is None and set(here.state_dict()) == {"python", "numpy", "torch"}
    states = [torch.arange(3, dtype=torch.uint8), torch.arange(4, dtype=torch.uint8)]
    other = Snapshot(here.python, here.numpy, here.torch, states)
    again = Snapshot.of(other.state_dict())
    assert again.cuda is not None and all(torch.equal(a, b) for a, b in zip(again.cuda, states, strict=True))
    drawn = torch.rand(2)
    again.restore()
    assert torch.equal(torch.rand(2), drawn)


def test_the_own_generators_of_a_loader_are_found_once_each_and_restored_if_they_are_as_many() -> None:
    first, second = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    data = list(range(4))
    one = DataLoader(data, shuffle=True, generator=first)  # type: ignore[arg-type]
    two = DataLoader(data, sampler=RandomSampler(data, generator=second), generator=first)  # type: ignore[arg-type]
    assert own_generators(one) == [first] and own_generators(two) == [first, second] and own_generators(data) == []
    states = own_states(two)
    first.manual_seed(7), second.manual_seed(7)
    restore_own(one, states)
    assert first.initial_seed() == 7 and not torch.equal(own_states(two)[0], states[0])
    restore_own(two, states)
    assert all(torch.equal(a, b) for a, b in zip(own_states(two), states, strict=True))


def train(folder: Path, *, stop_at: int | None = None, resume: bool = False) -> Run:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))

    def stop(run: Run) -> None:
        if run.done == stop_at:
            run.stop("enough", exit_code=75)

    trainer = Trainer(
        model, loss=torch.nn.CrossEntropyLoss(), optimizer=torch.optim.AdamW(model.parameters()), hooks=[stop],
        folder=folder, quiet=True, device="cpu",
    )  # fmt: skip
    return trainer.fit(DataLoader(Noisy(), batch_size=4, shuffle=True), epochs=3, checkpoint="100step", resume=resume)


@pytest.mark.parametrize("stop_at", [7, 10])  # inside an epoch, and at the end of one
def test_a_trainer_with_a_plain_loader_resumes_in_the_same_bits(tmp_path: Path, stop_at: int) -> None:
    calm = train(tmp_path / "calm")
    train(tmp_path / "stopped", stop_at=stop_at)
    resumed = train(tmp_path / "stopped", resume=True)
    assert resumed.step == calm.step == 15
    for one, two in zip(calm.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, two)
    assert (tmp_path / "calm" / "metrics.jsonl").read_bytes() == (tmp_path / "stopped" / "metrics.jsonl").read_bytes()
