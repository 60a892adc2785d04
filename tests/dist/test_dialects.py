"""Configs of other systems in two processes: a signal to one rank, a frozen rank and a restart end in the same bits."""

from __future__ import annotations

import pytest

from etude.checkpoint.tools.same_runs import compare_runs
from tests.faults.dialects import EXAMPLES, SMALL


@pytest.mark.parametrize("name", ["mmcv1", "mmengine", "libai"])
def test_two_processes_of_another_system_obey_signals_and_survive(jobs, tmp_path, name):
    config, *overrides = SMALL[name]
    words = ["train", EXAMPLES / config, *overrides, "--folder"]
    jobs.run(*words, "calm", cwd=tmp_path)
    jobs.run(*words, "cut", "--chaos", "sigterm@step=2,rank=1", cwd=tmp_path, code=143)
    jobs.run(*words, "cut", "--resume", cwd=tmp_path)
    assert compare_runs(tmp_path / "calm", tmp_path / "cut") is None
    job = jobs.run(*words, "frozen", "--chaos", "freeze@step=5,rank=1", cwd=tmp_path, hang_timeout=10.0, max_restarts=1)
    assert "rank 1 on" in job.output and "it is frozen (stopped by a signal)" in job.output
    assert compare_runs(tmp_path / "calm", tmp_path / "frozen") is None


def test_a_config_of_mcquic_is_refused_in_two_processes(jobs, tmp_path):
    job = jobs.run("train", EXAMPLES / "mcquic/photos.yaml", "--folder", "run", cwd=tmp_path, code=2)
    assert job.output.count("trains in one process, and 2 were started; `etude convert` makes a native config") == 1
    assert not (tmp_path / "run").exists()
