"""Upkeep of a run in two real processes: buffers are averaged, samplers learn the epoch."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest
import torch
from torch import distributed

import etude
from etude import torch_private
from etude.core.loop import fit
from etude.errors import ConfigError
from etude.hooks.upkeep import Compiled, EmptyCache, SamplerSeed, SyncBuffers
from tests.hooks.conftest import small_run


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


def test_sampler_seed_tells_samplers_the_epoch():
    class Sampler(torch.utils.data.SequentialSampler):
        epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    run = small_run([SamplerSeed()])
    data = run.data["train"].dataset
    run.data["train"] = torch.utils.data.DataLoader(data, batch_size=8, sampler=Sampler(data))
    fit(run)
    assert Sampler.epochs == [0, 1]


def test_sync_buffers_and_empty_cache_leave_a_single_process_alone():
    run = small_run([SyncBuffers(), EmptyCache(["after_epoch", "after_eval"])])
    fit(run)
    assert run.step == 8
    with pytest.raises(ConfigError, match="did you mean 'after_epoch'"):
        EmptyCache(["after_epcoh"])


@pytest.mark.parametrize(("graphs", "losses", "main", "told"), [
    (0, 0, True, True), (1, 0, True, False), (1, 1, True, True), (2, 1, True, False), (0, 0, False, False),
])  # fmt: skip
def test_a_model_of_which_nothing_was_compiled_is_warned_about_once(recwarn, monkeypatch, graphs, losses, main, told):
    count = [5]
    monkeypatch.setattr(torch_private, "graphs", lambda: count[0])
    hook, run = Compiled(losses), SimpleNamespace(world=SimpleNamespace(is_main=main))
    hook.after_step(run)  # without a beginning there is nothing to compare
    hook.before_train(run)
    count[0] += graphs
    hook.after_step(run), hook.after_step(run)
    assert [("compiled nothing" in str(one.message)) for one in recwarn] == [True] * told


def test_the_cache_is_emptied_where_there_is_an_accelerator(monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append("cuda"))
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: emptied.append("mps"))
    for cuda, mps in ((True, True), (True, False), (False, True), (False, False)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        EmptyCache().empty(None)
    assert emptied == ["cuda", "cuda", "mps"]
    assert list(EmptyCache("after_eval").calls()) == ["after_eval"] and list(EmptyCache().calls()) == ["after_epoch"]
    with pytest.raises(ConfigError, match="EmptyCache: no point is called 'after_epok'"):
        EmptyCache(["after_step", "after_epok"])
