"""How a model computes: gradient checkpointing, compile, channels-last, precision of products."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import etude
from etude.build import build
from etude.cli import main
from etude.errors import ConfigError
from tests import zygote

CONFIG = """\
model: {type: ConvNet, channels: [4, 8], classes: 10, dropout: 0.2}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: train, flat: false}, batch_size: 256}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 1, threads: 1}
checkpoint: false
"""


def trained(*overrides: str) -> list[torch.Tensor]:
    Path("c.yaml").write_text(CONFIG)
    run = etude.train(
        "c.yaml", overrides, options=etude.Options(folder="-".join(["run", *map(str, map(len, overrides))]), quiet=True)
    )
    return list(run.model.state_dict().values())


@pytest.mark.parametrize("pattern", ["blocks.*", "Sequential", "[Dropout, Linear]"])
def test_activations_that_are_computed_again_change_nothing(pattern, workdir, monkeypatch):
    calls = []
    original = torch.nn.Conv2d.forward
    monkeypatch.setattr(torch.nn.Conv2d, "forward", lambda self, x: (calls.append(1), original(self, x))[1])
    plain, count = trained(), len(calls)
    again = trained(f"train.gradient_checkpointing={pattern}")
    if "Dropout" not in pattern:
        assert len(calls) - count == 2 * count
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_a_pattern_that_matches_no_module_is_told_with_its_place(workdir):
    with pytest.raises(ConfigError, match="'bloks.*' matches no module of the model"):
        trained("train.gradient_checkpointing=bloks.*")


def test_images_and_weights_lie_in_channels_last_memory(workdir):
    seen = []
    Path("c.yaml").write_text(CONFIG)
    run = build(etude.load_plan("c.yaml", ["train.channels_last=true"])[0])
    run.model.blocks[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    run.model(torch.rand(2, 1, 8, 8))
    last = torch.channels_last
    assert seen[0].is_contiguous(memory_format=last)
    assert run.model.blocks[1][0].weight.is_contiguous(memory_format=last)
    assert torch.allclose(torch.stack([p.double().sum() for p in trained()]), torch.stack([p.double().sum() for p in trained("train.channels_last=true")]), atol=1e-3)  # fmt: skip


def test_compile_takes_the_words_of_torch(workdir, monkeypatch):
    given = []
    monkeypatch.setattr(torch, "compile", lambda model, **words: (given.append(words), model)[1])
    Path("c.yaml").write_text(CONFIG)
    for words in ("true", "{mode: reduce-overhead, fullgraph: true, dynamic: false}"):
        build(etude.load_plan("c.yaml", [f"train.compile={words}"])[0])
    words = {"mode": "reduce-overhead", "fullgraph": True, "dynamic": False}
    assert given == [{}, {}, words, words]  # the loss and the model
    with pytest.raises(ConfigError, match="unknown key train.compile.fulgraph; did you mean 'fullgraph'"):
        etude.load_plan("c.yaml", ["train.compile={fulgraph: true}"])


def test_without_a_compiler_training_runs_uncompiled_after_one_line(workdir):
    Path("c.yaml").write_text(CONFIG)
    said = zygote.etude(
        "train", "c.yaml", "train.compile=true", "--limit-batches", "2", "--folder", "run", check=True,
        env={**os.environ, "PATH": str(Path("nothing").absolute()), "CXX": "no-such-compiler"},
    )  # fmt: skip
    assert (said.stdout + said.stderr).count("train.compile has no effect: there is no C++ compiler") == 1


def test_products_have_the_precision_that_is_asked_for(workdir):
    Path("c.yaml").write_text(CONFIG)
    before = torch.get_float32_matmul_precision()
    try:
        build(etude.load_plan("c.yaml", ["train.matmul=high"])[0])
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    with pytest.raises(ConfigError, match=r"train.matmul"):
        etude.load_plan("c.yaml", ["train.matmul=tf32"])


def test_operations_that_depend_on_chance_are_refused_or_listed(workdir, capfd):
    parts = """
import torch, etude

@etude.MODELS.register
class Chance(torch.nn.Linear):
    def __init__(self):
        super().__init__(64, 10)
    def forward(self, inputs):
        torch.zeros(4).put_(torch.tensor([0]), torch.tensor([1.0]))
        return super().forward(inputs)
"""
    Path("chance.py").write_text(parts)
    Path("d.yaml").write_text(
        "imports: [chance.py]\nmodel: Chance\nloss: CrossEntropyLoss\n"
        "data: {train: {dataset: Digits, batch_size: 512}}\noptim: {type: SGD, lr: 0.1}\n"
        "train: {epochs: 1, deterministic: warn}\ncheckpoint: false\n"
    )
    try:
        assert main(["train", "d.yaml"]) == 0
        assert "chance  not deterministic: put_" in capfd.readouterr().err
        assert main(["train", "d.yaml", "train.deterministic=true"]) == 3
        assert "put_ does not have a deterministic implementation" in capfd.readouterr().err
        assert main(["check", "d.yaml", "train.deterministic=wran"]) == 2
        assert "did you mean 'warn'?" in "".join(capfd.readouterr())
    finally:
        torch.use_deterministic_algorithms(False)
