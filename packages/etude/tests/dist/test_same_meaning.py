"""One config means the same in any number of processes, under any strategy, and after a change of either."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.dist import project
from tests.dist.job import Net, Shaky
from tests.sampling import sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return project.make(tmp_path_factory.mktemp("same"))


@pytest.fixture(scope="module")
def one(jobs, folder):
    jobs.run("train", "config.yaml", "-q", "--folder", "one", cwd=folder, nproc=1)
    return folder / "one"


@pytest.fixture(scope="module")
def two(jobs, folder):
    jobs.run("train", "config.yaml", "-q", "--folder", "two", cwd=folder)
    return folder / "two"


def by_hand() -> dict[str, torch.Tensor]:
    """The same training as a raw loop, with the draws that the engine's loader makes."""
    from etude.data.loader import Loader

    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = Loader(Shaky(size=150), batch_size=32, shuffle=True)
    for _ in range(4):
        for inputs, target in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), target).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return model.state_dict()


def test_one_process_is_the_raw_loop_and_two_are_one(one, two):
    expected = by_hand()
    for name, weight in project.weights(one).items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-6)
    assert project.distance(one, two) < 1e-5
    exact = [(a["accuracy"], b["accuracy"]) for a, b in zip(project.records(one), project.records(two), strict=True)
             if "accuracy" in a]  # fmt: skip
    assert exact and all(a == b for a, b in exact)


def test_two_processes_give_the_same_bits_again(jobs, folder, two):
    jobs.run("train", "config.yaml", "-q", "--folder", "again", cwd=folder)
    assert project.same_bits(two, folder / "again")


@pytest.mark.thorough  # four processes on two cores
def test_four_processes_give_the_same_curve(jobs, folder, one):
    """150 samples in batches of 32 leave a last batch of 22, which four ranks cannot share evenly."""
    jobs.run("train", "config.yaml", "-q", "--folder", "four", cwd=folder, nproc=4)
    assert project.distance(one, folder / "four") < 1e-5


@pytest.mark.parametrize(
    "options", sample([["+parallel.strategy=fsdp"], ["+parallel={strategy: hsdp, shards: 2}"]], (1,))
)
def test_shards_give_the_same_curve(jobs, folder, one, options):
    name = f"sharded{len(options[0])}"
    jobs.run(
        "train", "config.yaml", *options, "-q", "--folder", name, cwd=folder, nproc=4 if "hsdp" in options[0] else 2
    )
    assert project.distance(one, folder / name) < 1e-5


def test_sgd_takes_a_kernel_that_can_work_on_shards(jobs, folder):
    sgd = ("train", "config.yaml", "optim.type=SGD", "train.epochs=1", "-q", "--folder")
    jobs.run(*sgd, "sgd", cwd=folder, nproc=1)
    jobs.run(*sgd, "sgd-shards", "+parallel.strategy=fsdp", cwd=folder)
    assert project.distance(folder / "sgd", folder / "sgd-shards") < 1e-5


@pytest.mark.parametrize(
    ("before", "after"),
    sample(
        [((2, "ddp"), (1, "none")), ((1, "none"), (2, "fsdp")), ((2, "fsdp"), (4, "ddp")), ((4, "ddp"), (3, "ddp"))],
        (1,),  # test_shards.py goes from fsdp to others
    ),
)
def test_another_world_goes_on_to_the_same_curve(jobs, folder, one, before, after):
    """Row 56 of the faults; three ranks cannot share a batch of 32 evenly."""
    name = f"from-{before[0]}-to-{after[0]}"
    words = ["train", "config.yaml", "-q", "--folder", name]
    strategies = [f"+parallel.strategy={strategy}" for _, strategy in (before, after)]
    jobs.run(*words, strategies[0], "--chaos", "sigterm@step=7", cwd=folder, nproc=before[0], code=143)
    jobs.run(*words, strategies[1], "--resume", cwd=folder, nproc=after[0])
    assert project.distance(one, folder / name) < 1e-5


def test_a_resume_that_cannot_be_exact_says_so(jobs, folder):
    words = ["train", "config.yaml", "--folder", "powersgd", "+parallel.compression=powersgd"]
    jobs.run(*words, "--chaos", "sigterm@step=7", cwd=folder, code=143)
    job = jobs.run(*words, "--resume", cwd=folder)
    assert job.output.count("PowerSGD starts without the errors of earlier steps") == 1


def test_everything_random_goes_on_in_the_same_bits(jobs, tmp_path):
    """Row 55 of the faults. Dropout draws from each rank's own stream, batch norms have buffers, and each rank has gradients of its own of an
    update that is not complete."""
    changes = {"model": {"norm": True, "dropout": 0.2}, "train": {"epochs": 3, "accumulate": 2},
               "hooks": [{"type": "EMA", "momentum": 0.1}]}  # fmt: skip
    project.make(tmp_path, **changes)
    jobs.run("train", "config.yaml", "-q", "--folder", "whole", cwd=tmp_path)
    jobs.run(
        "train", "config.yaml", "-q", "--folder", "cut", "--chaos", "sigterm@step=6,rank=1", cwd=tmp_path, code=143
    )
    jobs.run("train", "config.yaml", "-q", "--folder", "cut", "--resume", cwd=tmp_path)
    assert project.same_bits(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("strategy", "sent"), [("ddp", ["1 0", "0 0", "1 0", "0 0", "0 0"]),
                                                ("fsdp", ["1 0", "1 1", "1 0", "1 1", "1 1"])])  # fmt: skip
def test_gradients_travel_once_an_update_and_decisions_with_them(jobs, tmp_path, strategy, sent):
    """Five steps in groups of two. DDP carries decisions with the gradients; they go alone where none are sent."""
    project.make(tmp_path, hooks=["job.Messages"], train={"epochs": 1, "accumulate": 2})
    jobs.run("train", "config.yaml", f"+parallel.strategy={strategy}", "-q", "--folder", "run", cwd=tmp_path)
    assert (tmp_path / "messages.txt").read_text().splitlines() == sent


@pytest.mark.thorough  # trains two jobs; tests/core drops groups in one process
def test_a_group_with_a_loss_that_is_nan_is_dropped_alike_under_ddp_and_fsdp(jobs, tmp_path):
    """The first gradient of the group lies inside of FSDP when the second step is refused."""
    project.make(tmp_path, train={"epochs": 2, "accumulate": 2, "nonfinite": "skip"})
    for strategy in ("ddp", "fsdp"):
        words = ("train", "config.yaml", f"+parallel.strategy={strategy}", "-q", "--folder", strategy)
        jobs.run(*words, "--chaos", "nan@step=4,rank=1", cwd=tmp_path)
    assert project.distance(tmp_path / "ddp", tmp_path / "fsdp") < 1e-5


def test_the_other_way_to_say_a_batch(jobs, folder, two):
    jobs.run(
        "train", "config.yaml", "~data.train.batch_size", "+data.train.batch_size_per_rank=16", "-q",
        "--folder", "per-rank", cwd=folder,
    )  # fmt: skip
    assert project.same_bits(two, folder / "per-rank")


SLOW = """
import time
import etude


class Slow(etude.Hook):
    priority = 55  # before the log

    def after_step(self, run):
        if run.world.rank == 1:
            time.sleep(0.3)
"""


@pytest.mark.thorough  # sleeps on purpose
@pytest.mark.parametrize(("meet", "every"), sample([("log", "1step"), ("backward", "1ep")], (1,)))
def test_time_spent_waiting_for_another_process_is_accounted(jobs, folder, meet, every):
    (folder / "slow.py").write_text(SLOW)
    words = ["imports=[job.py, slow.py]", "+hooks=[slow.Slow]", f"log.every={every}", "checkpoint.every=2ep"]
    words += ["train.epochs=2"]
    jobs.run("train", "config.yaml", *words, "-q", "--folder", meet, cwd=folder)
    spent = json.loads((folder / meet / "status.json").read_text())["time"]
    # The other one sleeps for 3 seconds, of which 0.6 are before the two validations.
    assert spent["waiting for other processes"] > 1.2
