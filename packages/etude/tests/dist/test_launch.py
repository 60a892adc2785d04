"""Ranks that are killed, raise, hang or freeze, signals to all or to one: one message, one code, nothing lost."""

from __future__ import annotations

import os
import re
import signal
import socket
import time

import pytest

from tests import zygote
from tests.dist import project
from tests.dist.conftest import Jobs, descendants
from tests.sampling import sample

WORDS = ("train", "config.yaml", "-q", "--folder")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return project.make(tmp_path_factory.mktemp("failing"))


@pytest.fixture(scope="module")
def whole(jobs, folder):
    jobs.run(*WORDS, "whole", cwd=folder)
    return folder / "whole"


@pytest.mark.parametrize("rank", sample([0, 1], (0,)))  # below, rank 1 is killed
def test_a_killed_rank_is_started_again_to_the_same_bits(jobs, folder, whole, rank):
    job = jobs.run(*WORDS, f"killed-{rank}", "--chaos", f"kill@step=11,rank={rank}", cwd=folder, max_restarts=2)
    assert re.search(rf"rank {rank} on \S+ lost (at step \d+|in its first steps): killed", job.output)
    assert project.same_bits(whole, folder / f"killed-{rank}")


@pytest.mark.thorough  # our launcher is torchrun's agent, too; its test is above
@pytest.mark.parametrize("restarts", sample([0, 1], (0,)))
def test_torchrun_starts_the_same_and_starts_a_killed_rank_again(folder, whole, restarts):
    """Row 50 of the faults, and the same bits as with the launcher. Each rank it starts imports torch anew."""
    name = f"torchrun-{restarts}"
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", str(restarts)]
    words += ["-m", "etude", *WORDS, name, *(["--chaos", "kill@step=11,rank=1"] if restarts else [])]
    done = zygote.run(*words, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert ("another rank was lost or did not answer after step" in done.stderr) == bool(restarts)
    assert project.same_bits(whole, folder / name)


def test_without_restarts_a_killed_rank_ends_the_command(jobs, folder, whole):
    job = jobs.run(*WORDS, "lost", "--chaos", "kill@step=6,rank=1", cwd=folder, code=8)
    assert "rank 1 on" in job.output and "Traceback" not in job.output
    jobs.run(*WORDS, "lost", "--resume", cwd=folder)
    assert project.same_bits(whole, folder / "lost")


def test_without_a_launcher_the_survivors_end_by_themselves(tmp_path):
    """Row 51 of the faults: a plain scheduler starts each rank and watches none."""
    project.make(tmp_path)
    ranks = _plain_ranks(tmp_path, "-m", "etude", *WORDS, "plain", "--chaos", "kill@step=6,rank=1")
    said = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [8, -signal.SIGKILL], said
    assert "another rank was lost or did not answer after step" in said[0] and "Traceback" not in said[0]
    assert re.search(r"rank 1 on \S+ is gone, after step \d+", said[0]), said


@pytest.mark.thorough  # waits for a timeout
def test_without_a_launcher_a_frozen_rank_ends_the_others(tmp_path):
    """Row 52 of the faults; nobody is there to end the frozen one."""
    project.make(tmp_path)
    words = ["-m", "etude", *WORDS, "plain", "--chaos", "freeze@step=6,rank=1", "--hang-timeout", "10s"]
    ranks = _plain_ranks(tmp_path, *words)
    said = ranks[0].communicate()[1]
    assert ranks[0].returncode == 8 and "another rank was lost or did not answer after step" in said, said
    assert re.search(
        r"rank 1 on \S+ has not moved for \d+ s after step \d+: it is frozen \(stopped by a signal", said
    ), said
    os.kill(ranks[1].pid, signal.SIGKILL)
    ranks[1].wait()


def _plain_ranks(folder, *words):
    """Two processes that are told of each other as a plain scheduler does it."""
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": "1"}
    return [zygote.start(*words, cwd=folder, env=os.environ | world | {"RANK": str(rank)}) for rank in (0, 1)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def test_two_launchers_of_one_machine_meet(jobs, folder, whole, tmp_path):
    """The endpoint is here for both of them: the first that comes is its host."""
    other = Jobs(tmp_path / "log.txt")
    options = {"cwd": folder, "nproc": 1, "nodes": 2, "endpoint": f"localhost:{_free_port()}"}
    begun = [one.start(*WORDS, "launchers", **options) for one in (jobs, other)]
    assert [job.wait() for job in begun] == [0, 0], [job.output for job in begun]
    other.close()
    assert project.same_bits(whole, folder / "launchers")


def test_a_rank_that_raises_is_named_with_the_line(jobs, tmp_path):
    """Row 53 of the faults."""
    project.make(tmp_path, hooks=[{"type": "job.Seen", "raise_at": 5, "rank": 1}])
    job = jobs.run(*WORDS, "raised", cwd=tmp_path, code=3)
    assert re.search(r"etude: rank 1 on \S+ failed after step 5:", job.output)
    assert "job.py" in job.output and "this rank is tired" in job.output
    assert job.output.count("error:") == 1


def test_a_loss_that_is_nan_on_one_rank_stops_all(jobs, folder):
    job = jobs.run(*WORDS, "nan", "--chaos", "nan@step=6,rank=1", cwd=folder, code=4)
    assert "not finite at step 6 on rank 1" in job.output
    assert re.search(r"last good checkpoint: \S*step-000000004", job.output)  # which rank 0 alone knows
    job = jobs.run(*WORDS, "none", "--chaos", "kill@step=6,rank=2", cwd=folder, code=2)
    assert "--chaos: there is no rank 2; ranks go from 0 to 1" in job.output


def test_a_loss_that_is_nan_on_one_rank_is_skipped_by_all(jobs, folder):
    jobs.run(*WORDS, "skip", "+train.nonfinite=skip", "--chaos", "nan@step=6,rank=1", cwd=folder)
    jobs.run(*WORDS, "rollback", "+train.nonfinite=rollback", "--chaos", "nan@step=6,rank=0", cwd=folder)
    assert project.records(folder / "skip")[-1]["step"] == project.records(folder / "rollback")[-1]["step"] == 20


@pytest.mark.parametrize(
    ("fault", "words"), sample([("hang", "it is in hook Faults"), ("freeze", "stopped by a signal")], (0,))
)  # test_dialects.py freezes one
def test_a_rank_that_stands_still_is_named(jobs, folder, fault, words):
    job = jobs.run(*WORDS, fault, "--chaos", f"{fault}@step=5,rank=1", cwd=folder, code=8, hang_timeout=10.0)
    assert "rank 1 on" in job.output and words in job.output


@pytest.mark.thorough  # waits for a timeout; the test above has a hook that hangs
def test_a_rank_that_hangs_in_its_data_is_named(jobs, tmp_path):
    project.make(tmp_path, data={"train": {"dataset": {"type": "job.Shaky", "sleep_at": 3}, "batch_size": 32}})
    job = jobs.run(*WORDS, "data", cwd=tmp_path, code=8, hang_timeout=10.0)
    assert "loads data" in job.output and "time.sleep(3600)" in job.output


@pytest.mark.thorough  # waits for most of a minute
def test_a_rank_that_never_comes_to_train_is_named(jobs, tmp_path):
    project.make(tmp_path, data={"train": {"dataset": {"type": "job.Shaky", "sleepy_rank": 1}, "batch_size": 32}})
    job = jobs.run(*WORDS, "late", cwd=tmp_path, code=8, hang_timeout=10.0, grace=1.0)
    assert re.search(r"rank 1 on \S+ never came to the first step, and the others have waited for it", job.output)
    assert "time.sleep(3600)" in job.output


def test_a_job_that_was_stopped_as_a_whole_trains_on(jobs, folder):
    """As after Ctrl-Z and fg: no rank is blamed for the time in which nothing could move."""
    job = jobs.start("train", "config.yaml", "--folder", "paused", "train.epochs=2000", cwd=folder, hang_timeout=4.0)
    job.until("6/10000")
    everyone = [jobs.process.pid, *descendants(jobs.process.pid)]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(6)
    at = len(job.output)
    for pid in reversed(everyone):
        os.kill(pid, signal.SIGCONT)
    while " step " not in job.output[at:]:
        assert "has not moved" not in job.output
        time.sleep(0.05)
    time.sleep(1)
    job.send(signal.SIGTERM)
    assert job.wait() == 143 and "has not moved" not in job.output, job.output[-2000:]


@pytest.mark.parametrize(("name", "code"), sample([("sigterm", 143), ("sigint", 130), ("usr1", 75)], (1,)))
def test_a_signal_to_one_rank_stops_all_at_one_step(jobs, folder, whole, name, code):
    """Row 32 of the faults."""
    jobs.run(*WORDS, name, "--chaos", f"{name}@step=6,rank=1", cwd=folder, code=code)
    jobs.run(*WORDS, name, "--resume", cwd=folder)
    assert project.same_bits(whole, folder / name)


def test_a_signal_to_the_launcher_stops_all(jobs, folder, whole):
    job = jobs.start("train", "config.yaml", "--folder", "signalled", "train.epochs=2000", cwd=folder)
    job.until("6/10000")
    job.send(signal.SIGTERM)
    assert job.wait() == 143
    assert re.search("stopped by SIGTERM (at|in the evaluation after) step", job.output)


def test_time_is_up_for_all_at_once(jobs, folder):
    job = jobs.run("train", "config.yaml", "--folder", "limited", "train.epochs=20000", "--max-time", "0.3s", cwd=folder,
                   code=75)  # fmt: skip
    assert "time is up at step" in job.output


def test_a_folder_in_use_and_a_mistake_are_told_once(jobs, folder, whole):
    job = jobs.run(*WORDS, "whole", cwd=folder, code=2)
    assert job.output.count("holds a run at step 20") == 1
    job = jobs.run(*WORDS, "tiny", "data.train.batch_size=1", cwd=folder, code=2)
    assert "cannot be shared among 2 processes" in job.output and not (folder / "tiny").exists()


def test_ranks_that_were_given_different_things_are_told_before_the_first_step(jobs, tmp_path):
    project.make(tmp_path, data={"train": {"dataset": {"type": "job.Shaky", "apart": True}, "batch_size": 32}})
    job = jobs.run(*WORDS, "apart", cwd=tmp_path, code=2)
    assert re.search(r"rank 1 on \S+: data.train is samples 151\b.*, on rank 0 it is samples 150", job.output)
    assert not (tmp_path / "apart").exists()
