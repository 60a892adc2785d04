"""Nobody gets in: what a job listens on, and what becomes of it when somebody writes to where its ranks meet."""

from __future__ import annotations

import os
import pickle
import socket
import time

import pytest
from torch.distributed import TCPStore

from etude.dist.jobs import meeting, secret
from tests import zygote
from tests.dist import doors, project
from tests.dist.security import WORDS, Payload, write_into_store
from tests.sampling import sample

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
print("ranks", dist.get_world_size(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return project.make(tmp_path_factory.mktemp("doors"))


@pytest.mark.parametrize("strategy", sample(["ddp", "fsdp"], (0,)))
def test_on_one_machine_nothing_listens_beyond_loopback(jobs, folder, strategy):
    """A restart included, and whatever network the environment chooses for jobs of several machines."""
    words = (*WORDS, strategy, f"+parallel.strategy={strategy}", "--chaos", "kill@step=11,rank=1")
    job = jobs.start(*words, cwd=folder, max_restarts=1)
    seen = doors.during(job, jobs.process.pid)
    assert job.wait() == 0, job.output
    assert "starting again" in job.output
    assert {door.kind for door in seen} == {"tcp", "unix"}  # the store and gloo; the server of forks
    assert [door for door in seen if not door.is_narrow] == []


def test_a_script_in_several_processes_does_not_listen_beyond_loopback(tmp_path):
    """`etude exec --nproc`: the script makes its group itself, from torchrun's variables."""
    (tmp_path / "script.py").write_text(SCRIPT + "import time; time.sleep(3)\n")
    child = zygote.start(
        "-m", "etude", "exec", "--nproc", "2", "script.py", cwd=tmp_path, env=os.environ | {"GLOO_SOCKET_IFNAME": "all"}
    )
    seen = set()
    while child.poll() is None:
        seen |= doors.doors(child.pid)
        time.sleep(0.05)
    assert child.returncode == 0
    assert any(door.kind == "tcp" for door in seen)
    assert [door for door in seen if not door.is_narrow] == []


@pytest.mark.parametrize("what", sample(["pickle", "rubbish"], (0, 1)))
def test_what_a_stranger_writes_into_the_store_is_never_run(jobs, folder, tmp_path, what):
    """Every key that is in the store, such as those of sharded saves, overwritten again and again."""
    value = pickle.dumps(Payload(tmp_path / "was-run")) if what == "pickle" else os.urandom(1 << 12)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = (*WORDS, f"{what}-while", "+parallel.strategy=fsdp", "train.epochs=40")
    job = jobs.start(*words, cwd=folder, endpoint=f"localhost:{port}", hang_timeout=10.0)
    seen = write_into_store(job, port, value)
    code = job.wait()
    assert not (tmp_path / "was-run").exists()
    assert "Traceback" not in job.output and "fault of the engine" not in job.output, job.output
    assert code in (0, 2, 8) and (code == 0 or "etude: error: " in job.output or "etude: rank" in job.output), (
        job.output
    )
    assert len(seen) > 3 or not hasattr(TCPStore, "list_keys")


@pytest.mark.parametrize("what", ["pickle", "rubbish"])
def test_what_is_in_the_store_before_the_ranks_come_is_not_read(folder, tmp_path, monkeypatch, what):
    """The ranks of one machine meet in a file of their own user: gloo crashes on an address that is none."""
    monkeypatch.setenv(secret.NAME, "known")
    store = meeting.listen("127.0.0.1")
    value = pickle.dumps(Payload(tmp_path / "was-run")) if what == "pickle" else os.urandom(1 << 12)
    names = [f"0//{group}cpu//0/{rank}" for group in ("", "1//") for rank in (0, 1)]
    for key in (*(f"{secret.prefix('ranks/0')}/{name}" for name in names), "torch.rendezvous.etude-0"):
        store.set(key, value)
    place = meeting.Place("127.0.0.1", store.port, 0, 2, file=str(tmp_path / "meeting"))
    ranks = [
        zygote.start("-m", "etude", *WORDS, what, cwd=folder, env=os.environ | place.environment(rank, 2))
        for rank in (0, 1)
    ]
    assert [rank.wait() for rank in ranks] == [0, 0]
    assert not (tmp_path / "was-run").exists()


def test_a_message_without_the_seal_of_the_job_is_refused(monkeypatch):
    monkeypatch.setenv(secret.NAME, "one")
    data = pickle.dumps({"a": 1})
    mark = secret.seal(data)
    assert secret.unseal(data, mark) == data
    monkeypatch.setenv(secret.NAME, "other")
    with pytest.raises(secret.BrokenSeal, match="not by a process of this job"):
        secret.unseal(data, mark)


def test_launchers_refuse_what_is_not_by_one_of_them(monkeypatch):
    """Several machines: rubbish in place of the plan, and another secret."""
    monkeypatch.setenv(secret.NAME, "one")
    store = meeting.listen("127.0.0.1")
    there = meeting.Machines(f"127.0.0.1:{store.port}", 2, "job")
    keys = TCPStore("127.0.0.1", store.port, is_master=False, wait_for_workers=False)
    for rubbish in (b"", b"x" * 10, pickle.dumps(1), b"[" * 100_000, secret.seal(b"{}") + b"[]"):
        there._meeting = None
        keys.set(f"{secret.prefix('job/0')}/plan", rubbish)
        with pytest.raises(meeting.NoMeeting, match=r"somebody else writes to 127\.0\.0\.1:\d+, or ETUDE_JOB_SECRET"):
            there.begin(0, 1)
        keys.set(f"{secret.prefix('job/0')}/arrived", "0")
    signed = b'{"address": [], "port": {}}'
    keys.set(f"{secret.prefix('job/0')}/plan", secret.seal(signed) + signed)
    with pytest.raises(meeting.NoMeeting, match="the plan of the host is not one"):
        there.begin(0, 1)
