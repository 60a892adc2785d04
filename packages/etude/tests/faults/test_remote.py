"""Checkpoints on a real S3 server: damage, outages, two runs at one place, kills, and every mistake in an address."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.storage import owner
from etude.checkpoint.storage.lock import FolderInUse
from etude.checkpoint.storage.owner import Claim, OwnerLost
from etude.checkpoint.storage.places import locate
from etude.checkpoint.storage.remote import RemoteDisk
from etude.checkpoint.store import Store
from etude.cli import main
from tests.object_store import ObjectStore, served

pytest.importorskip("moto")

CONFIG = """
model: {type: MLP, sizes: [64, 16, 10], dropout: 0.1}
loss: CrossEntropyLoss
data: {train: {dataset: {type: Digits, split: train}, batch_size: 64}}
optim: {type: AdamW, lr: 1e-2}
train: {epochs: 2, limit_batches: 6}
imports: [noisy.py]
hooks: [{type: Noisy}]
checkpoint: {every: 4step, keep: null}
log: {every: 3step}
"""
#: Draws from the user's own generator at every step, and keeps what it drew.
NOISY = """
import random

from etude.registry import HOOKS
from etude.core.hook import Hook

@HOOKS.register
class Noisy(Hook):
    def after_step(self, run):
        for value in run.model.parameters():
            value.data.add_(1e-3 * random.random())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with served() as store:
        yield store


@pytest.fixture(autouse=True)
def calm(server: ObjectStore) -> Iterator[None]:
    yield
    server.calm()


@pytest.fixture
def place(server: ObjectStore) -> str:
    """A prefix in a new bucket."""
    return f"s3://{server.bucket()}/runs/a"


class Job:
    """The same small job, with its checkpoints in ``place``."""

    def __init__(self, folder: Path, place: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.place, self.capsys, self.said = folder, place, capsys, ""
        (folder / "config.yaml").write_text(CONFIG)
        (folder / "noisy.py").write_text(NOISY)

    def words(self, name: str, *more: str, place: str | None = None) -> list[str]:
        where = self.place if place is None else place
        return ["train", "config.yaml", "--folder", name, *([f"+checkpoint.folder={where}"] if where else []), *more]

    def run(self, name: str, *more: str, place: str | None = None) -> int:
        """Run it to its end in this process; return the exit code. What it said is in ``said``."""
        self.capsys.readouterr()
        code = main(self.words(name, *more, place=place))
        self.said = self.capsys.readouterr().err
        return code

    def start(self, name: str, *more: str) -> subprocess.Popen[str]:
        """Start it as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "etude", *self.words(name, *more)],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
        )

    def weights(self, place: str | None = None) -> dict[str, torch.Tensor]:
        loaded = Store(place or self.place, write=False).resume()
        assert loaded is not None
        return dict(loaded.state["model"])

    def is_like_calm(self) -> bool:
        """Return whether it ended as a run that nothing happened to, which saves on the disk."""
        if not (self.folder / "calm").exists():
            assert self.run("calm", place="") == 0
        calm, own = self.weights(str(self.folder / "calm/checkpoints")), self.weights()
        return calm.keys() == own.keys() and all(torch.equal(calm[name], own[name]) for name in calm)


@pytest.fixture
def job(workdir: Path, place: str, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(workdir, place, capsys)


def names(place: str) -> list[str]:
    disk, where = locate(place)
    return disk.names(where)


def is_one_line(said: str) -> bool:
    return "Traceback" not in said and "fault of the engine" not in said and "botocore" not in said


# -- damage ------------------------------------------------------------------------------------------------------------


def truncate(server: ObjectStore, folder: str) -> None:
    path = f"{folder}/model.safetensors"
    server.files.pipe_file(path, server.files.cat_file(path)[:-100])


def remove_part(server: ObjectStore, folder: str) -> None:
    server.files.rm_file(f"{folder}/optimizer.safetensors")


def empty_manifest(server: ObjectStore, folder: str) -> None:
    server.files.pipe_file(f"{folder}/manifest.json", b"")


def flip_bit(server: ObjectStore, folder: str) -> None:
    path = f"{folder}/model.safetensors"
    content = bytearray(server.files.cat_file(path))
    content[len(content) // 2] ^= 1
    server.files.pipe_file(path, bytes(content))


DAMAGE = [truncate, remove_part, empty_manifest, flip_bit]


@pytest.mark.parametrize("harm", DAMAGE)
def test_a_damaged_newest_checkpoint_is_passed_over_and_set_aside(
    job: Job, server: ObjectStore, harm: Callable[[ObjectStore, str], None]
) -> None:
    assert job.run("a", "--chaos", "sigterm@step=9") == 143
    harm(server, f"{job.place.removeprefix('s3://')}/step-000000009")
    assert job.run("b", "--resume", f"{job.place}/step-000000009") == 7
    assert "step-000000009: " in job.said and is_one_line(job.said)
    assert job.run("a", "--resume") == 0, job.said
    assert "skipped step-000000009" in job.said and "resumed from step 8" in job.said
    assert "broken-000000009" in names(job.place) and "step-000000009" not in names(job.place)
    assert job.is_like_calm()


def test_restart_sets_aside_what_was_there(job: Job) -> None:
    assert job.run("a", "--chaos", "sigterm@step=5") == 143
    assert job.run("b", "--restart") == 0
    assert {"aside-000000004", "aside-000000005"} <= set(names(job.place)) and job.is_like_calm()


def test_a_rename_that_is_cut_off_leaves_a_whole_checkpoint(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call of it: the manifest is the last to arrive and the first to go."""
    disk, where = locate(place)
    for number in range(1, 9):
        for name in ("a", "b", "manifest.json"):
            disk.put(disk.join(where, f"{number}/{name}"), [name.encode()])
        calls = iter(range(1, 20))

        def cut(call: str, path: str, attempt: Any, number: int = number, calls: Any = calls) -> Any:
            if next(calls) == number:
                raise KeyboardInterrupt
            return RemoteDisk._again(disk, call, path, attempt)  # type: ignore[arg-type]

        monkeypatch.setattr(disk, "_again", cut)
        with suppress(KeyboardInterrupt):
            disk.rename(disk.join(where, f"{number}"), disk.join(where, f"to-{number}"))
        monkeypatch.undo()
        sides = [disk.names(disk.join(where, name)) for name in (f"{number}", f"to-{number}")]
        for side in sides:
            assert "manifest.json" not in side or len(side) == 3
        assert any("manifest.json" in side for side in sides)


# -- addresses and credentials -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, "no credentials"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "no answer"),
        ({"AWS_ENDPOINT_URL": "http://nobody.invalid:9000"}, "no answer"),
        ({"AWS_PROFILE": "nobody"}, "no credentials (The config profile (nobody) could not be found)"),
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_reached_is_one_line(
    job: Job, monkeypatch: pytest.MonkeyPatch, change: dict[str, str | None], said: str
) -> None:
    monkeypatch.setenv("HOME", str(job.folder))
    for name, value in change.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    from fsspec import AbstractFileSystem

    for kind in AbstractFileSystem.__subclasses__():
        kind.clear_instance_cache()
    clear_clients()
    for words in (["a"], ["a", "--resume", f"{job.place}/step-000000004"]):
        assert job.run(*words) in (2, 7), job.said
        assert said in job.said and job.place in job.said and is_one_line(job.said)
        assert len(job.said.strip().splitlines()) == 1, job.said
        if "--resume" not in words:
            assert job.said.startswith(f"etude: error: override '+checkpoint.folder={job.place}': checkpoint.folder: ")
    assert not (job.folder / "a").exists()
    clear_clients()


def clear_clients() -> None:
    """Forget clients, which keep the address and the credentials that they were made with."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


def test_a_misspelt_bucket_is_refused_and_not_created(job: Job, server: ObjectStore) -> None:
    before = server.files.ls("")
    for words in (["a"], ["a", "--resume", "s3://no-such-bucket/run"], ["a", "+init_from=s3://no-such-bucket/run"]):
        assert job.run(*words, place="s3://no-such-bucket/run") in (2, 7), job.said
        assert "there is no bucket 'no-such-bucket'; is it misspelt?" in job.said and is_one_line(job.said)
    assert server.files.ls("") == before and not (job.folder / "a").exists()


def test_weights_from_an_address_that_does_not_answer_are_one_line(job: Job, server: ObjectStore) -> None:
    for address in ("http://127.0.0.1:1/x.pth", f"http://127.0.0.1:{server.relay.port}/no/such.pth"):
        assert job.run("a", f"+init_from={address}", place="") in (2, 7), job.said
        assert job.said.startswith(f"etude: error: override '+init_from={address}': {address}: "), job.said
        assert is_one_line(job.said) and len(job.said.splitlines()) == 1


# -- one owner ---------------------------------------------------------------------------------------------------------


def test_of_two_runs_at_one_place_the_second_is_refused(job: Job) -> None:
    disk, where = locate(job.place)
    assert isinstance(disk, RemoteDisk)
    claim = Claim(disk, where, say=print)
    assert job.run("b") == 2
    assert f"run directory {job.place} in use by pid {os.getpid()} on " in job.said
    assert main(["ckpt", "prune", job.place, "--keep", "1"]) == 2
    claim.release()
    assert job.run("b") == 0 and ".lock" not in names(job.place)
    assert main(["ckpt", "prune", job.place, "--keep", "1"]) == 0
    assert names(job.place) == ["latest", "step-000000012"]


@pytest.mark.thorough  # two processes; the test above has one
def test_two_runs_started_together_do_not_mix(job: Job) -> None:
    jobs = [job.start(name) for name in "ab"]
    said = [one.communicate(timeout=120)[1] for one in jobs]
    codes = sorted(one.returncode for one in jobs)
    # The first may have ended before the second begins: then it finds a run that is done.
    assert codes == [0, 2], said
    assert any("in use by pid" in text or "holds a run at step" in text for text in said) and job.is_like_calm()


def claimed(place: str, lines: list[str]) -> Claim:
    disk, where = locate(place)
    assert isinstance(disk, RemoteDisk)
    return Claim(disk, where, say=lines.append)


def forge(place: str, **changes: Any) -> None:
    """Leave the mark of a run on another machine."""
    disk, where = locate(place)
    facts = {"run": "x", "pid": 7, "host": "elsewhere", "since": "now", "machine": "m", "started": "1", "beat": 1}
    disk.write_atomically(f"{where}/.lock", lambda file: file.write(json.dumps(facts | changes).encode()))


def test_a_mark_from_elsewhere_is_watched_before_it_is_taken_over(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "SILENCE", 0.4)
    lines: list[str] = []
    forge(place)
    claim = claimed(place, lines)
    assert "is marked as in use by pid 7 on elsewhere since now; waiting" in lines[0] and "taken over" in lines[1]
    assert claim.check()
    forge(place, beat=2)
    with pytest.raises(OwnerLost, match="belongs to pid 7 on elsewhere since now now; this run stops"):
        claim.check()
    claim.release()
    assert names(place) == [".lock"]
    monkeypatch.setattr(owner, "SILENCE", 20.0)
    refused = threading.Event()

    def live() -> None:
        for beat in range(3, 300):
            forge(place, beat=beat)
            if refused.wait(0.1):
                return

    owner_elsewhere = threading.Thread(target=live)
    owner_elsewhere.start()
    try:
        with pytest.raises(FolderInUse, match="in use by pid 7 on elsewhere"):
            claimed(place, lines)
    finally:
        refused.set()
        owner_elsewhere.join()


def test_a_run_that_has_lost_its_place_stops_and_leaves_the_other_alone(job: Job, server: ObjectStore) -> None:
    server.relay.cut_at = when("step-000000004/model", lambda: forge(job.place))
    assert job.run("a") == 6
    assert "belongs to pid 7 on elsewhere" in job.said and is_one_line(job.said)
    key = f"{job.place.removeprefix('s3://')}/.lock"
    assert json.loads(server.files.cat_file(key))["run"] == "x" and "step-000000008" not in names(job.place)


def when(text: str, act: Callable[[], Any]) -> Callable[[bytes], bool]:
    """Return what a relay asks of each request: it acts at the first with ``text``, and cuts none."""
    acted: list[Any] = []

    def look(data: bytes) -> bool:
        if not acted and text.encode() in data:
            acted.append(True)
            act()
        return False

    return look


def test_the_mark_is_renewed_and_put_back(place: str, server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "BEAT", 0.05)
    key = f"{place.removeprefix('s3://')}/.lock"
    claim = claimed(place, [])
    first = server.files.cat_file(key)
    ends = time.monotonic() + 10
    while server.files.cat_file(key) == first and time.monotonic() < ends:
        time.sleep(0.02)
    assert server.files.cat_file(key) != first
    server.files.rm(key)
    assert not claim.check() and claim.check()
    claim.release(), claim.release()
    assert names(place) == []


# -- outages and kills -------------------------------------------------------------------------------------------------


def test_a_run_that_was_killed_in_a_save_is_resumed_bitwise_identical(job: Job) -> None:
    life = job.start("a", "--chaos", "kill@save=2")
    life.communicate(timeout=120)
    assert life.returncode == -signal.SIGKILL
    assert job.run("a", "--resume") == 0, job.said
    assert "which is gone; taken over" in job.said and "removed unfinished checkpoint step-000000008" in job.said
    assert "resumed from step 4" in job.said and job.is_like_calm()


def test_an_outage_inside_a_save_costs_nothing_if_it_is_short(job: Job, server: ObjectStore) -> None:
    """Nor does the user's generator move: clients draw their waits from another one."""
    relay = server.relay
    relay.outage, relay.cut_at = 0.7, lambda data: b"step-000000008/optimizer" in data and relay.cuts == 0
    assert job.run("a") == 0, job.said
    assert relay.cuts == 1 and "was not saved" not in job.said and job.is_like_calm()


def test_clients_draw_from_a_generator_of_their_own(place: str, server: ObjectStore) -> None:
    import botocore.retryhandler
    import botocore.utils

    locate(place)
    random.seed(1)
    before = random.getstate()
    for module in (botocore.retryhandler, botocore.utils):
        assert 0 <= module.random.random() < 1 and module.random.randint(3, 3) == 3
    server.relay.down(0.5)
    assert names(place) == [] and random.getstate() == before


@pytest.mark.thorough  # three outages of ten seconds
def test_a_long_outage_ends_the_run_with_code_6(job: Job, server: ObjectStore) -> None:
    server.relay.outage, server.relay.cut_at = 0.0, lambda data: b"step-000000004" in data
    assert job.run("a", "checkpoint.every=1step") == 6, job.said
    assert "saves in a row have failed" in job.said and is_one_line(job.said)
    server.calm()
    assert job.run("a", "checkpoint.every=1step", "--resume") == 0, job.said
    assert "resumed from step 3" in job.said and job.is_like_calm()


def test_a_prefix_that_is_emptied_is_noticed_and_written_anew(job: Job, server: ObjectStore) -> None:
    bucket = job.place.removeprefix("s3://").partition("/")[0]
    # The second save has begun with a look at the first one.
    server.relay.cut_at = when("step-000000008/optim", lambda: server.files.rm(f"{bucket}/runs", recursive=True))
    code = job.run("a")
    assert code == 0 and f"{job.place} was emptied while the run trained: older checkpoints are gone" in job.said
    assert "model.safetensors: deleted while the others were written" in job.said
    assert job.is_like_calm() and [name for name in names(job.place) if name != "latest"] == ["step-000000012"]
