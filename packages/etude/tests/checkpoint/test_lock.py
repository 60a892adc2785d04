from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time
from pathlib import Path

import pytest

from etude.checkpoint.storage.lock import FolderInUse, Lock


def test_a_second_holder_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    with Lock(tmp_path), pytest.raises(FolderInUse, match=rf"in use by pid {os.getpid()} on \S+ since 20") as caught:
        Lock(tmp_path)
    assert caught.value.exit_code == 2
    Lock(tmp_path).release()


def test_the_lock_goes_with_its_owner_even_when_a_worker_lives_on(tmp_path: Path) -> None:
    """The owner starts a worker and is killed; the worker, still running, does not keep the folder locked."""
    ready, tell = os.pipe()
    owner = os.fork()
    if owner == 0:
        lock = Lock(tmp_path)
        worker = os.fork()
        if worker == 0:
            time.sleep(60)
            os._exit(0)
        os.write(tell, str(worker).encode())
        signal.pause()
        lock.release()
    worker = int(os.read(ready, 20))
    with pytest.raises(FolderInUse, match=f"pid {owner} "):
        Lock(tmp_path)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    os.kill(worker, 0)
    Lock(tmp_path).release()
    os.kill(worker, signal.SIGKILL)


def test_a_strange_lock_file_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_bytes(b"\xff not json")
    Lock(tmp_path).release()


def test_a_lock_signs_anew_and_is_released_twice_without_harm(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("x" * 1000)
    lock = Lock(tmp_path)
    facts = json.loads((tmp_path / ".lock").read_text())
    assert set(facts) == {"pid", "host", "since"} and facts["pid"] == os.getpid()
    lock.release()
    with Lock(tmp_path) as again:
        lock.release()
        with pytest.raises(FolderInUse):
            Lock(tmp_path)
    again.release()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1}'])
def test_a_holder_that_did_not_sign_is_another_process(tmp_path: Path, text: str) -> None:
    with Lock(tmp_path):
        (tmp_path / ".lock").write_text(text)
        with pytest.raises(FolderInUse, match=r"in use by another process$"):
            Lock(tmp_path)


def test_an_error_that_is_no_other_holder_is_raised_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="no locks"):
        Lock(tmp_path)
