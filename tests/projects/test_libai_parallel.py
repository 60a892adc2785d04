"""LiBai's own models, unchanged, split over processes: the losses and weights of one process."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
import torch

from tests import sampling, zygote
from tests.places import SOURCES

pytestmark = pytest.mark.pins("libai-0.1.1", "libai-needs")

SCRIPT = str(Path(__file__).with_name("libai_models.py"))
IMPORTS = "libai.models, torch.distributed.tensor, torch.distributed.fsdp"
DROPOUT = ("dropout=0.1",)
#: Updates of the script.
STEPS = 4
#: (model, (data, tensor, pipeline), options), the cheap one of each kind first.
CASES = [
    ("gpt", (1, 2, 1), DROPOUT),
    ("bert", (1, 1, 2), (*DROPOUT, "micro=2", "recompute=1")),
    ("vit", (2, 1, 1), ("zero=2",)),
]
ALL = [
    *CASES,
    *((model, layout, (*DROPOUT, "micro=2")) for model in ("gpt", "bert", "t5", "vit")
      for layout in ((1, 2, 1), (1, 1, 2), (2, 2, 1), (1, 2, 2), (2, 1, 2))),
    *(("gpt", layout, (f"zero={zero}", "micro=2")) for zero in (1, 2, 3) for layout in ((2, 1, 1), (2, 2, 1))),
    *(("gpt", (2, 1, 2), (f"zero={zero}", "micro=2")) for zero in (1, 2)),
    ("gpt", (1, 1, 4), (*DROPOUT, "micro=4", "layers=4")),
    ("bert", (2, 2, 1), (*DROPOUT, "fused=0")),
    ("bert", (1, 2, 1), ("optim=LAMB", "lr=0.01")),
    ("swin", (1, 2, 1), DROPOUT),
]  # fmt: skip


@pytest.fixture
def run(projects, monkeypatch):
    own = dataclasses.replace(projects, imports=IMPORTS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (*own.folders, *SOURCES))))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def started(model, layout, out, options):
        number = layout[0] * layout[1] * layout[2]
        words = ("-m", "etude", "exec", SCRIPT, model, *map(str, layout), out, *options)
        ranks = zygote.ranks(number, *words, cwd=own.cwd, after=own._imports())
        said = [rank.communicate()[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0] * number, said
        return torch.load(own.cwd / out)

    return started


@pytest.mark.parametrize(("model", "layout", "options"), ALL if sampling.ALL else CASES)
def test_a_model_learns_as_in_one_process(run, model, layout, options):
    one = run(model, (1, 1, 1), "one.pt", [word for word in options if not word.startswith("zero")])
    many = run(model, layout, "many.pt", options)
    assert len(many["losses"]) == STEPS
    for first, second in zip(one["losses"], many["losses"], strict=True):
        assert second == pytest.approx(first, abs=1e-5)
    for name, value in one["state"].items():
        torch.testing.assert_close(many["state"][name], value, atol=1e-5, rtol=0)
    assert many["generators"] == 1
    data, tensor, pipeline = layout
    assert_spread(many["held"], many["whole"], tensor, pipeline, data if "zero" in "".join(options) else 1)


def assert_spread(held, whole, tensor, pipeline, shares):
    """Each rank holds its part. What LiBai leaves whole (norms, some biases, image embeddings) is less than 60 percent."""
    assert sum(held) < 1.6 * whole * len(held) / (tensor * pipeline * shares)
    assert max(held) < whole
