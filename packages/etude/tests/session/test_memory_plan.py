"""The memory of a run is told before it runs, by training on tensors without data."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import etude
from etude.api import load_plan
from etude.cli import main
from etude.errors import ConfigError
from etude.session.memory_plan import Live, Planner

CONFIG = {
    "model": {"type": "MLP", "sizes": [64, 512, 10]},
    "loss": "CrossEntropyLoss",
    "data": {"train": {"dataset": {"type": "Digits", "split": "train"}, "batch_size": 64}},
    "optim": {"type": "AdamW", "lr": 0.01, "clip_norm": 1.0},
    "train": {"steps": 4},
    "checkpoint": False,
}
WEIGHTS = 4 * (64 * 512 + 512 + 512 * 10 + 10)


class Choosing(nn.Module):
    """Its shapes follow from values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        rows = torch.nonzero(x.sum(1) > 0)[:, 0]
        return self.layer(x[rows])[:1].expand(len(x), 10)


def planned(folder, ranks: int = 1, **changes) -> Planner:
    (folder / "c.yaml").write_text(json.dumps({**CONFIG, **changes}))
    return Planner(load_plan(str(folder / "c.yaml"), [], dialect="", options={})[0], ranks)


def test_the_parts_are_those_of_the_model_and_the_step_is_that_of_a_run(tmp_path):
    planner = planned(tmp_path)
    found, before = planner.estimate(), {name: p.clone() for name, p in planner.run.model.named_parameters()}
    assert (found.model, found.gradients, found.exchange) == (WEIGHTS, WEIGHTS, 0)
    assert 2 * WEIGHTS <= found.optimizer < 2.01 * WEIGHTS
    run, live = planner.run, Live()
    with live:
        live.hold([*run.model.parameters(), planner.batch[0], planner.batch[1]])
        for run.step in range(2):
            run.outputs = run.update(run, planner.batch)
            if not run.step:  # the estimate has left the weights alone
                assert all(
                    torch.isfinite(p).all() and p.shape == before[n].shape for n, p in run.model.named_parameters()
                )
    assert found.tensors == pytest.approx(live.peak, rel=0.03)


def test_a_larger_batch_needs_more_and_the_largest_one_fits_just_so(tmp_path):
    planner = planned(tmp_path)
    limit = planner.estimate(3000).tensors
    best = planner.largest(limit, of_process=False)
    assert best is not None and 2900 < best.batch_size <= 3000 and best.tensors <= limit
    assert planner.largest(WEIGHTS, of_process=False) is None


def test_two_ranks_have_buckets_or_a_half_of_everything(tmp_path):
    whole = planned(tmp_path).estimate()
    copies = planned(tmp_path, 2, parallel={"strategy": "ddp", "bucket_view": False}).estimate()
    assert copies.exchange == WEIGHTS and copies.model == whole.model
    halves = planned(tmp_path, 2, parallel={"strategy": "fsdp"}).estimate()
    assert halves.model == pytest.approx(whole.model / 2, rel=0.02)
    assert halves.optimizer == pytest.approx(whole.optimizer / 2, rel=0.02)
    assert not torch.distributed.is_initialized()


@etude.MODELS.register
class ChoosingForMemory(Choosing): ...


def test_what_cannot_be_told_is_said(tmp_path, capsys):
    with pytest.raises(ConfigError, match="cannot be told without running a step"):
        planned(tmp_path, model={"type": "ChoosingForMemory"}).estimate()
    with pytest.raises(ConfigError, match="split cannot be told; `etude fit-batch`"):
        planned(tmp_path, 2, parallel={"tensor": 2})
    (tmp_path / "c.yaml").write_text(json.dumps(CONFIG))
    config = str(tmp_path / "c.yaml")
    for words, said in (
        (["--limit", "1GB"], "--limit is a limit of --memory"),
        (["--memory", "--limit", "much"], "'much' is not an amount of memory"),
        (["--memory", "--limit", "0"], "nothing fits into that"),
        (["--memory", "--limit", "1M"], "not even the smallest batch fits into 1 MB"),
    ):
        assert main(["plan", config, *words]) == 2
        assert said in capsys.readouterr().err
    assert main(["plan", config, "--memory", "--limit", "2GB"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("memory     batch 64") and "largest    a batch of" in out
