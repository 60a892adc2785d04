"""Checkpoints of parameters in shards: each rank writes its own pieces, whole or not at all; any world reads them."""

from __future__ import annotations

import shutil

import pytest
import torch

from etude.cli import main
from tests.dist import project

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


@pytest.mark.parametrize(("nproc", "strategy"), [(2, "fsdp"), (1, "none"), (2, "ddp"), (4, "fsdp")])
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


@pytest.mark.parametrize("rank", [0, 1])
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
