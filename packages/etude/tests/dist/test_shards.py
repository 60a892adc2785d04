"""Checkpoints of parameters in shards: each rank writes its own pieces, whole or not at all; any world reads them."""

from __future__ import annotations

import shutil

import pytest
import torch

from etude.checkpoint.warm_start import read_weights
from etude.cli import main
from tests.dist import project
from tests.sampling import sample

FSDP = ("train", "config.yaml", "+parallel.strategy=fsdp", "-q", "--folder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return project.make(
        tmp_path_factory.mktemp("shards"), train={"epochs": 3}, checkpoint={"every": "4step", "keep": 9}
    )


@pytest.fixture(scope="module")
def calm(jobs, folder):
    jobs.run(*FSDP, "calm", cwd=folder)
    return folder / "calm"


@pytest.fixture(scope="module")
def cut(jobs, folder):
    jobs.run(*FSDP, "cut", "--chaos", "sigterm@step=7,rank=1", cwd=folder, code=143)
    return folder / "cut"


def newest(run):
    return run / "checkpoints" / (run / "checkpoints/latest").read_text().strip()


def test_each_rank_writes_its_own_pieces_which_are_verified_together(cut, capsys):
    step = newest(cut)
    names = {path.name for path in step.iterdir()}
    assert {"model.safetensors", "model.rank-1.safetensors", "optimizer.rank-1.safetensors"} <= names
    own, other = ((step / name).stat().st_size for name in ("model.safetensors", "model.rank-1.safetensors"))
    assert 0.8 < own / other < 1.25
    assert main(["ckpt", "verify", str(cut)]) == 0
    assert f"{step.name}  ok" in capsys.readouterr().out


@pytest.mark.parametrize(("nproc", "strategy"), sample([(2, "fsdp"), (1, "none"), (2, "ddp"), (4, "fsdp")], (0, 1)))
def test_pieces_are_resumed_in_any_world(jobs, folder, calm, cut, nproc, strategy):
    name = f"on-{nproc}-{strategy}"
    shutil.copytree(cut, folder / name)
    words = ["train", "config.yaml", f"+parallel.strategy={strategy}", "-q", "--folder", name, "--resume"]
    jobs.run(*words, cwd=folder, nproc=nproc)
    if (nproc, strategy) == (2, "fsdp"):
        assert project.same_bits(calm, folder / name)
    assert project.distance(calm, folder / name) < 1e-5


def test_tools_read_convert_and_put_pieces_together(jobs, folder, calm, cut, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert main(["ckpt", "consolidate", "cut", "-o", "whole"]) == 0
    step = f"whole/{newest(cut).name}"
    assert not list((folder / "whole").glob("*/*rank-1*")) and main(["ckpt", "verify", step]) == 0
    assert main(["ckpt", "diff", "cut", step, "--strict"]) == 0
    assert main(["ckpt", "consolidate", step, "-o", "again"]) == 2
    assert "whole tensors already" in capsys.readouterr().err
    assert main(["ckpt", "convert", "cut", "dcp", "--to", "dcp", "--optimizer"]) == 0
    assert main(["ckpt", "diff", "cut", "dcp"]) == 0
    jobs.run(*FSDP, "from-whole", "--resume", step, cwd=folder)
    expected, got = project.weights(calm), project.weights(folder / "from-whole")
    assert all(torch.equal(expected[name], got[name]) for name in expected)


@pytest.mark.parametrize("rank", sample([0, 1], (1,)))
def test_a_rank_that_is_killed_inside_a_save_leaves_the_older_checkpoint(jobs, folder, calm, rank):
    """Rows 57 and 50 of the faults: no manifest, no checkpoint."""
    name = f"killed-{rank}"
    job = jobs.run(*FSDP, name, "--chaos", f"kill@save=2,rank={rank}", cwd=folder, code=8)
    assert f"rank {rank} on" in job.output
    kept = [path.name for path in (folder / name / "checkpoints").glob("step-*")]
    assert kept == ["step-000000004"]
    jobs.run(*FSDP, name, "--resume", cwd=folder)
    assert project.same_bits(calm, folder / name)


def test_a_piece_that_is_missing_or_changed_is_noticed_and_the_older_checkpoint_used(jobs, folder, calm):
    """Row 58 of the faults."""
    jobs.run(*FSDP, "damaged", "--chaos", "bitflip@save=2,rank=1,sigterm@step=9", cwd=folder, code=143)
    last = newest(folder / "damaged")
    (last / "optimizer.rank-1.safetensors").unlink()
    jobs.run(*FSDP, "damaged", "--resume", cwd=folder)
    log = (folder / "damaged/log.txt").read_text()
    assert f"skipped {last.name}: optimizer.rank-1.safetensors is missing" in log
    assert "skipped step-000000008: checksum of model.rank-1.safetensors differs" in log
    assert "resumed from step 4" in log
    assert project.same_bits(calm, folder / "damaged")


@pytest.mark.thorough  # trains four jobs
def test_averages_lie_in_shards_too_and_are_evaluated(jobs, tmp_path):
    """With recomputed activations, and stopped where the gradients of an update are not complete; the same under ddp."""
    project.make(tmp_path, hooks=[{"type": "EMA", "momentum": 0.3}],
                 train={"epochs": 2, "accumulate": 2, "gradient_checkpointing": ["Linear"]})  # fmt: skip
    for strategy in ("ddp", "fsdp"):
        words = ("train", "config.yaml", f"+parallel.strategy={strategy}", "-q", "--folder", strategy)
        jobs.run(*words, "--chaos", "sigterm@step=6,rank=1", cwd=tmp_path, code=143)
        jobs.run(*words, "--resume", cwd=tmp_path)
    jobs.run(*FSDP, "whole", cwd=tmp_path)
    assert project.same_bits(tmp_path / "whole", tmp_path / "fsdp")
    assert project.distance(tmp_path / "ddp", tmp_path / "fsdp") < 1e-5
    seen = [
        [one["accuracy"] for one in project.records(tmp_path / name) if "accuracy" in one] for name in ("ddp", "fsdp")
    ]
    assert seen[0] == seen[1] and len(seen[0]) == 2
    averages = [read_weights(tmp_path / name, key="hook.Ema.average") for name in ("ddp", "fsdp", "whole")]
    for name in averages[0]:
        torch.testing.assert_close(averages[0][name], averages[1][name], rtol=0, atol=1e-5)
        assert torch.equal(averages[1][name], averages[2][name])


@pytest.mark.thorough  # compiles on every rank
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_model_that_torch_does_not_compile_is_warned_of_once(jobs, tmp_path, strategy):
    project.make(tmp_path, train={"epochs": 1, "compile": {"backend": "eager"}}, parallel={"strategy": strategy})
    words = ("train", "config.yaml", "-q", "--folder")
    bare = ("model={type: torch.nn.Linear, in_features: 64, out_features: 10}",)
    assert jobs.run(*words, "bare", *bare, cwd=tmp_path).output.count("train.compile has no effect") == 1
    assert "train.compile has no effect" not in jobs.run(*words, "own", cwd=tmp_path).output


def test_pieces_of_two_meshes_are_whole_together(jobs, tmp_path):
    jobs.run("exec", project.HERE / "two_meshes.py", cwd=tmp_path, nproc=4)
