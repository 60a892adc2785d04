"""Configs of other systems in two processes: a signal to one rank, a frozen rank and a restart end in the same bits."""

from __future__ import annotations

import pytest

from etude.checkpoint.tools.same_runs import compare_runs
from tests import zygote
from tests.across.fault_lives import EXAMPLES, SMALL, SMALLER, draw_pictures
from tests.sampling import sample


@pytest.mark.parametrize("name", sample(["mmcv1", "mmengine", "libai", "mcquic"], (1,)))
def test_two_processes_of_another_system_obey_signals_and_survive(jobs, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    if name == "mcquic":
        draw_pictures()
    config, *overrides = SMALL[name] + SMALLER.get(name, [])
    words = ["train", EXAMPLES / config, *overrides, "--folder"]
    jobs.run(*words, "calm", cwd=tmp_path)
    job = jobs.run(*words, "cut", "--chaos", "sigterm@step=2,rank=1", cwd=tmp_path, code=143)
    assert job.output.count("stopped by SIGTERM at step") <= 2  # the log's line and the command's, of one rank
    jobs.run(*words, "cut", "--resume", cwd=tmp_path)
    assert compare_runs(tmp_path / "calm", tmp_path / "cut") is None
    job = jobs.run(*words, "frozen", "--chaos", "freeze@step=5,rank=1", cwd=tmp_path, hang_timeout=10.0, max_restarts=1)
    assert "rank 1 on" in job.output and "it is frozen (stopped by a signal)" in job.output
    assert compare_runs(tmp_path / "calm", tmp_path / "frozen") is None


SCRIPT = """\
import sys
import torch
from mmcv.runner import get_dist_info, init_dist
init_dist("pytorch", backend="gloo")
rank, world = get_dist_info()
seen = torch.tensor([float(rank)])
torch.distributed.all_reduce(seen)
loader = torch.utils.data.DataLoader([1, 2], num_workers=1, collate_fn=lambda samples: sum(samples))  # not to be pickled
print(f"rank {rank} of {world} has {seen.item()} and {list(loader)}, {sys.argv[1:]}\\n", end="", flush=True)
torch.distributed.barrier()  # both have printed
if sys.argv[1:] == ["--fail"] and rank == 1:
    raise ValueError("of rank 1")
"""


def test_exec_runs_a_script_in_several_processes_and_names_the_one_that_fails(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = zygote.etude("exec", "--nproc", "2", "script.py", "--fail", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    for rank in (0, 1):
        assert f"rank {rank} of 2 has 1.0 and [1, 2], ['--fail']" in done.stdout
    assert "rank 1 on" in done.stderr and "script.py:12: ValueError: of rank 1" in done.stderr


def test_a_config_of_mcquic_has_the_same_weights_on_all_ranks_and_goes_on_alone(jobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw_pictures()
    (tmp_path / "seen.py").write_text(SEEN)
    config, *overrides = SMALL["mcquic"]
    words = ["train", EXAMPLES / config, *overrides, "+train.externalLib=[seen.py]", "--folder", "run"]
    hook = "train.hooks=[{key: Seen, params: {}}]"
    jobs.run(*words, hook, "--chaos", "usr1@step=3,rank=1", cwd=tmp_path, code=75)
    assert (tmp_path / "rank-0.txt").read_text() == (tmp_path / "rank-1.txt").read_text()
    assert sorted(path.name for path in (tmp_path / "run/latest").glob("*.ckpt")) == [
        "best.ckpt",
        "last.ckpt",
        "saved.ckpt",
    ]
    jobs.run(*words, hook, "--resume", cwd=tmp_path, nproc=1)
    # Two batches of 4 an epoch before; 4 samples of the second epoch are left, which are two batches of 2.
    steps = [line.split()[0] for line in (tmp_path / "rank-0.txt").read_text().splitlines()]
    assert steps == [str(step) for step in range(1, 3 + 2 + 4 + 1)]


SEEN = """
import torch
from mcquic.train.hooks import StepFinishHook
from mcquic.utils.registry import HookRegistry


@HookRegistry.register
class Seen(StepFinishHook):
    def stepFinish(self, step, epoch, trainer, *args, **kwds):
        total = sum(tensor.double().abs().sum().item() for tensor in trainer._model.state_dict().values())
        with open(f"rank-{trainer.rank}.txt", "a") as file:
            print(step, total, file=file)
"""
