"""With virtual ranks, any number of processes comes to the same bits."""

from __future__ import annotations

import shutil

import pytest
import torch

from etude.cli import main
from etude.dist.fixed_sum import Branch
from tests.dist import project

CONFIG = """
imports: [language.py, normed.py]
model: {type: language.Llama, dropout: 0.1}
loss: language.next_token
data:
  train: {dataset: {type: language.Tokens, size: 42}, batch_size: 9}  # parts of 2 and 3, and a last batch of 6
  val: {dataset: {type: language.Tokens, size: 13, seed: 1}, batch_size: 4}
optim: {type: AdamW, lr: 1e-2, clip_norm: 0.5}
metrics: [language.RightTokens]
train: {steps: 12, validate: 4step}
parallel: {virtual_ranks: 4}
checkpoint: {every: 2step, keep: 3}
log: {every: 1step}
"""
NORMED = """
import torch
from language import Llama

class Normed(Llama):
    def __init__(self):
        super().__init__(dropout=0.2)
        self.batch_norm = torch.nn.BatchNorm1d(32)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        return self.output(self.batch_norm(self.layers["0"](x, self.table).transpose(1, 2)).transpose(1, 2))

class Synced(Normed):
    def __init__(self):
        super().__init__()
        self.batch_norm = torch.nn.SyncBatchNorm(32)
"""
TRAIN = ("train", "config.yaml", "-q", "--folder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("virtual")
    shutil.copy(project.HERE / "language.py", made)
    (made / "normed.py").write_text(NORMED)
    (made / "config.yaml").write_text(CONFIG)
    return made


@pytest.fixture(scope="module")
def alone(jobs, folder):
    jobs.run(*TRAIN, "alone", cwd=folder, nproc=1)
    return folder / "alone"


@pytest.mark.parametrize("nproc", [2, 4])
def test_another_number_of_processes_comes_to_the_same_bits(jobs, folder, alone, nproc):
    """With dropout, parts of unequal size, clipping, and metrics of an evaluation."""
    jobs.run(*TRAIN, f"on-{nproc}", cwd=folder, nproc=nproc)
    assert project.same_bits(alone, folder / f"on-{nproc}")


def test_averages_of_batch_norm_unused_parameters_and_accumulation_come_to_the_same_bits(jobs, folder):
    words = ("model={type: normed.Normed}", "+train.accumulate=2", "train.steps=6")
    for nproc in (1, 4):
        jobs.run(*TRAIN, f"normed-{nproc}", *words, cwd=folder, nproc=nproc)
    assert project.same_bits(folder / "normed-1", folder / "normed-4")
    assert project.weights(folder / "normed-1")["batch_norm.running_mean"].any()


def test_a_run_that_resumes_in_another_number_of_processes_ends_in_the_same_bits(jobs, folder, alone):
    jobs.run(*TRAIN, "moved", "--chaos", "kill@step=5,rank=2", cwd=folder, nproc=4, code=8)
    jobs.run(*TRAIN, "moved", "--resume", cwd=folder, nproc=2)
    assert project.same_bits(alone, folder / "moved")


def test_another_number_of_virtual_ranks_is_another_run(jobs, folder, alone):
    shutil.copytree(alone, folder / "changed")
    job = jobs.run(
        *TRAIN, "changed", "train.steps=14", "parallel.virtual_ranks=2", "--resume", cwd=folder, nproc=1, code=2
    )
    assert "parallel.virtual_ranks: 4 → 2" in job.output


def test_a_trainer_cuts_the_batches_of_a_loader(jobs, folder):
    (folder / "script.py").write_text(SCRIPT)
    for nproc in (1, 2):
        jobs.run("exec", "script.py", f"script-{nproc}.pt", cwd=folder, nproc=nproc)
    one, two = (torch.load(folder / f"script-{nproc}.pt") for nproc in (1, 2))
    assert one["losses"] == two["losses"] and one["metrics"] == two["metrics"]
    assert all(torch.equal(one["model"][name], two["model"][name]) for name in one["model"])


SCRIPT = """
import sys
import torch, etude, language
torch.manual_seed(0)
model, losses = language.Llama(dropout=0.1), []
trainer = etude.Trainer(
    model, loss=language.next_token, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), metrics=[language.RightTokens()],
    hooks=[lambda run: losses.append(float(run.loss))], parallel={"virtual_ranks": 2}, seed=0, quiet=True,
)
loader = torch.utils.data.DataLoader(language.Tokens(size=20), batch_size=7)
trainer.fit(loader, val=language.Tokens(size=9, seed=1), batch_size=None, steps=4)
metrics = trainer.evaluate(language.Tokens(size=9, seed=1), batch_size=4)
if trainer.placed.world.is_main:
    torch.save({"losses": losses, "metrics": metrics, "model": model.state_dict()}, sys.argv[1])
"""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["parallel.virtual_ranks=6"], "sums in a fixed order need a power of two; write 4 or 8"),
        (["+parallel.tensor=2"], "a model that is split does not work with parallel.virtual_ranks"),
        (["+parallel.strategy=fsdp"], "fsdp does not work with parallel.virtual_ranks; write strategy: ddp"),
        (["+train.precision=fp16"], "precision fp16 does not work with parallel.virtual_ranks; write bf16"),
        (["+train.compile=true"], "train.compile does not work with parallel.virtual_ranks"),
        (["optim={type: LBFGS}"], "LBFGS"),
        (["+update=language.Tokens"], "an update of your own does not work with parallel.virtual_ranks"),
    ],
)
def test_what_cannot_hold_it_is_refused(folder, monkeypatch, capsys, changes, words):
    monkeypatch.chdir(folder)
    assert main(["check", "config.yaml", *changes]) == 2
    said = capsys.readouterr()
    assert words in said.out + said.err


@pytest.mark.parametrize(
    ("nproc", "changes", "words"),
    [
        (3, [], "3 processes cannot share 4 virtual ranks evenly; start 1, 2, 4 processes"),
        (8, [], "8 processes cannot share 4 virtual ranks evenly"),
        (1, ["data.train.batch_size=3"], "a batch of 3 cannot be shared among 4 virtual ranks"),
        (1, ["model={type: normed.Synced}"], "batch_norm is a SyncBatchNorm"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(folder, monkeypatch, capsys, nproc, changes, words):
    monkeypatch.chdir(folder)
    many = ["--nproc", str(nproc)] if nproc > 1 else []
    assert main(["train", "config.yaml", "-q", *changes, *many]) == 2
    assert words in capsys.readouterr().err


def test_a_branch_adds_in_the_order_of_a_balanced_tree():
    values = [torch.tensor(value) for value in (1e8, 1.0, -1e8, 1.0, 3.0, 1e-8, 7.0, 0.1)]

    def tree(few):
        return few[0] if len(few) == 1 else tree(few[: len(few) // 2]) + tree(few[len(few) // 2 :])

    branch = Branch()
    for value in values:
        branch.add(value.clone())
    assert torch.equal(branch.sum, tree(values))
    assert not torch.equal(branch.sum, sum(values))
