"""Jobs for clusters: one that is queued again until the run has finished, and a manifest for Kubernetes."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from etude.cli import main
from tests.dist.conftest import descendants

CONFIG = """\
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 512}}
optim: {type: SGD, lr: 0.1}
train: {steps: 2, threads: 1, max_time: 0.01s}
checkpoint: {every: 1step}
"""
KUBERNETES = ("--kubernetes", "--folder", "/runs/x", "--image", "me/etude:1", "--claim", "runs", "--name", "digits")


@pytest.mark.thorough  # the next one is queued again and resumes, too
def test_a_job_that_was_saved_for_requeue_is_queued_again_and_resumes(workdir: Path, capsys):
    Path("c.yaml").write_text(CONFIG)
    assert main(["submit", "c.yaml", "--local", "--folder", "run"]) == 0
    assert capsys.readouterr().out.startswith("job ")
    deadline = time.monotonic() + 300
    while not list(Path("run/jobs").glob("*_result.pkl")):
        assert time.monotonic() < deadline, [path.read_text() for path in Path("run/jobs").glob("*_log.*")]
        time.sleep(0.2)
    said = next(Path("run/jobs").glob("*_log.err")).read_text()
    assert "time is up at step 1" in said and "resumed from step 1" in said and "finished: 2 steps" in said
    assert Path("run/checkpoints/step-000000002").is_dir()


@pytest.mark.thorough  # waits for most of a minute
def test_a_warning_to_all_processes_of_a_job_saves_and_queues_it_again(workdir: Path, capsys):
    """SLURM sends the signal that submitit waits for to every process of the step, not only to submitit's."""
    Path("c.yaml").write_text(CONFIG.replace("steps: 2, threads: 1, max_time: 0.01s", "steps: 4000000, threads: 1"))
    assert (
        main(["submit", "c.yaml", "--local", "--folder", "run", "+log.every=100step", "checkpoint.every=100step"]) == 0
    )
    job = int(capsys.readouterr().out.split()[1].strip(";"))
    said = lambda: "".join(path.read_text() for path in Path("run/jobs").glob("*_log.err"))  # noqa: E731
    try:
        _wait(lambda: " 100/4000000" in said(), said)
        below = descendants(job)
        assert len(below) >= 2
        for pid in below:
            os.kill(pid, signal.SIGUSR2)
        _wait(lambda: "resumed from step" in said(), said)
        assert "stopped by SIGUSR1 at step" in said() and "Job not requeued" not in said()
        submission = pickle.loads(next(Path("run/jobs").glob("*_submitted.pkl")).read_bytes())
        assert submission._timeout_countdown > 1000
    finally:
        for pid in [job, *descendants(job)]:
            os.kill(pid, signal.SIGKILL)


def _wait(ready: Callable[[], bool], said: Callable[[], str]) -> None:
    deadline = time.monotonic() + 300
    while not ready():
        assert time.monotonic() < deadline, said()
        time.sleep(0.2)


def test_a_manifest_runs_one_pod_a_machine_and_starts_it_again_after_75(capsys):
    assert main(["submit", "c.yaml", "optim.lr=0.1", *KUBERNETES, "--nodes", "2", "--nproc", "4", "--gpus", "4"]) == 0
    service, job = yaml.safe_load_all(capsys.readouterr().out)
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == job["metadata"]["labels"]
    assert (job["spec"]["completions"], job["spec"]["completionMode"]) == (2, "Indexed")
    rules = {rule["action"]: rule["onExitCodes"]["values"] for rule in job["spec"]["podFailurePolicy"]["rules"][:2]}
    assert 75 in rules["Ignore"] and 2 in rules["FailJob"]
    command = job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert command.startswith("exec etude train c.yaml optim.lr=0.1 --folder /runs/x --resume --nproc 4")
    assert "--nnodes 2 --rdzv-endpoint digits-0.digits:29400" in command


@pytest.mark.parametrize("more", [(), ("--nodes", "2", "--nproc", "4", "--gpus", "4")])
def test_a_manifest_fits_the_schema_of_kubernetes(capsys, more):
    main(["submit", "c.yaml", *KUBERNETES, *more])
    for one in yaml.safe_load_all(capsys.readouterr().out):
        kubernetes_validate.validate(one, "1.31", strict=True)


def test_what_a_cluster_would_refuse_is_said_before(capsys):
    assert main(["submit", "c.yaml", "--kubernetes", "--folder", "/runs/x"]) == 2
    assert "--kubernetes needs --image" in capsys.readouterr().err
    assert main(["submit", "c.yaml", *KUBERNETES[:-1], "Digits_1"]) == 2
    assert "small letters, digits and dashes" in capsys.readouterr().err
