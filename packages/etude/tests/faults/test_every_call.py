"""Like SQLite tests itself: the n-th file-system call of a save fails, for n = 1, 2, 3 … until a save gets through."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.retention import Retention
from etude.checkpoint.storage import disk
from etude.checkpoint.store import Store


def state(step: int) -> dict[str, Any]:
    return {
        "model": {"w": torch.full((64, 8), float(step))},
        "optimizer": {"state": {0: {"moment": torch.full((64, 8), step / 2)}}, "lr": 0.1},
        "counters": {"step": step},
    }


def check(folder: Path, *, at_least: int) -> int:
    """There is a complete checkpoint, it is the newest complete one, and no part of it is from another step."""
    loaded = Store(folder, write=False, say=lambda line: None).resume(need=["model", "optimizer"])
    assert loaded is not None
    step = loaded.manifest.step
    assert step >= at_least
    assert loaded.state["model"]["w"].unique().tolist() == [float(step)]
    assert loaded.state["optimizer"]["state"][0]["moment"].unique().tolist() == [step / 2]
    return step


def nth(number: int, fault: Callable[[str, str, int], None], *, for_good: bool = False) -> tuple[disk.Gate, list[str]]:
    reached: list[str] = []
    count = 0

    def gate(call: str, path: str, size: int) -> None:
        nonlocal count
        count += 1
        if count == number or (for_good and count > number):
            reached.append(call)
            fault(call, path, size)

    return gate, reached


def failing(code: int) -> Callable[[str, str, int], None]:
    def fault(call: str, path: str, size: int) -> None:
        error = OSError(code, os.strerror(code), path)
        raise disk.Torn(size // 2, error) if call == "write" else error

    return fault


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_the_nth_call_fails(tmp_path: Path, code: int, for_good: bool) -> None:
    calls = []
    for number in range(1, 200):
        folder = tmp_path / str(number)
        store = Store(folder, retention=Retention(last=1), failures=99, say=lambda line: None)
        for step in (1, 2):
            store.save(state(step), step=step)
        store.close()
        gate, reached = nth(number, failing(code), for_good=for_good)
        with disk.gated(gate):
            store.save(state(3), step=3)
            store.wait()
        calls += reached[:1]
        check(folder, at_least=2)
        store.poll()
        store.save(state(4), step=4)
        store.close()
        assert check(folder, at_least=2) == 4
        Store(folder, say=lambda line: None)
        assert not [name for name in os.listdir(folder) if name.startswith(".")]
        if not reached:
            break
    assert not reached and len(calls) >= 25
    assert {"mkdir", "create", "write", "fsync", "fsync_folder", "rename", "remove", "rmdir", "list"} <= set(calls)


def test_the_process_dies_at_the_nth_call(tmp_path: Path) -> None:
    """The same with a death in place of an error; torn writes leave half of the bytes."""

    def die(call: str, path: str, size: int) -> None:
        if call == "write":
            with open(path, "ab") as file:
                file.write(b"\0" * (size // 2))
        os.kill(os.getpid(), signal.SIGKILL)

    for number in range(1, 200):
        folder = tmp_path / str(number)
        store = Store(folder, retention=Retention(last=1), say=lambda line: None)
        store.save(state(1), step=1)
        store.close()
        pid = os.fork()
        if pid == 0:
            disk.set_gate(nth(number, die)[0])
            store.save(state(2), step=2)
            store.close()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        found = check(folder, at_least=1)
        later = Store(folder, retention=Retention(last=1), say=lambda line: None)
        assert not [name for name in os.listdir(folder) if name.startswith(".")]
        later.save(state(3), step=3)
        later.close()
        assert check(folder, at_least=3) == 3
        if code == 0:
            break
    assert code == 0 and found == 2 and number > 25


def test_the_nth_call_is_slow_and_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path, retention=Retention(last=1), say=lambda line: None)
    with disk.gated(lambda call, path, size: __import__("time").sleep(0.002)):
        for step in (1, 2, 3):
            store.save(state(step), step=step)
        store.close()
    assert check(tmp_path, at_least=3) == 3
