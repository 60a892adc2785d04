"""Upkeep of a run in two real processes: buffers are averaged, samplers learn the epoch."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest
import torch
from torch import distributed

import etude
from etude.hooks.upkeep import SamplerSeed, SyncBuffers


class Net(torch.nn.Module):
    def __init__(self, value):
        super().__init__()
        self.register_buffer("mean", torch.full((2,), float(value)))
        self.register_buffer("count", torch.tensor(value))


def average(rank, file, answers):
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    net = Net(rank + 1)
    SyncBuffers().after_epoch(SimpleNamespace(model=net))
    answers.put((rank, net.mean.tolist(), net.count.item()))
    distributed.destroy_process_group()


def test_buffers_of_two_processes_are_averaged_and_counters_stay(tmp_path):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    ranks = [context.Process(target=average, args=(rank, tmp_path / "store", answers)) for rank in (0, 1)]
    for rank in ranks:
        rank.start()
    found = sorted(answers.get(timeout=120) for _ in ranks)
    for rank in ranks:
        rank.join()
    assert found == [(0, [1.5, 1.5], 1), (1, [1.5, 1.5], 2)]


def test_a_process_alone_keeps_its_buffers():
    net = Net(3)
    SyncBuffers().after_epoch(SimpleNamespace(model=net))
    assert net.mean.tolist() == [3.0, 3.0]


def test_the_sampler_of_a_loader_or_of_its_batches_learns_the_epoch():
    seen = []
    sampler = SimpleNamespace(set_epoch=seen.append)
    for loader in (SimpleNamespace(sampler=sampler), SimpleNamespace(batch_sampler=SimpleNamespace(sampler=sampler))):
        SamplerSeed().before_epoch(SimpleNamespace(data={"train": loader}, epoch=4))
    SamplerSeed().before_epoch(SimpleNamespace(data={"train": [1]}, epoch=5))
    assert seen == [4, 4]


def test_the_operation_that_gives_a_gradient_of_nan_is_named(capfd):
    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, inputs):
            return torch.sqrt(self.layer(inputs) * 0)  # 0, with a gradient of 0 · ∞

    model = Root()
    trainer = etude.Trainer(
        model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=torch.nn.MSELoss(), quiet=True,
        hooks=["DetectAnomaly"],
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="SqrtBackward0|MulBackward0"), pytest.warns(UserWarning, match="torch.sqrt"):
        trainer.fit([(torch.ones(2, 4), torch.ones(2, 1))], epochs=1)
    assert not torch.is_anomaly_enabled()
