"""Object stores: calls that fail for a while are made again, what arrived in part is no checkpoint."""

from __future__ import annotations

import errno
import os
import uuid
from collections import Counter

import pytest

from etude.checkpoint.storage import disk, places
from etude.checkpoint.store import Store
from etude.errors import SaveError

from .conftest import small_state


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(places.time, "sleep", lambda seconds: None)
    return f"memory://{uuid.uuid4().hex}/checkpoints"


def test_a_network_that_fails_twice_per_call_costs_nothing(folder: str) -> None:
    tried: Counter[tuple[str, str]] = Counter()

    def gate(call: str, path: str, size: int) -> None:
        tried[call, path] += 1
        if call not in ("write", "fsync_folder") and tried[call, path] % 3:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET), path)

    store = Store(folder)
    with disk.gated(gate):
        store.save(small_state(1), step=1)
        store.close()
    loaded = Store(folder, write=False).resume(need=["model"])
    assert loaded is not None and loaded.manifest.step == 1 and max(tried.values()) >= 3


def test_a_file_whose_upload_breaks_off_is_sent_again(folder: str) -> None:
    broken: list[str] = []

    def gate(call: str, path: str, size: int) -> None:
        if call == "write" and path not in broken:
            broken.append(path)
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE), path)

    store = Store(folder)
    with disk.gated(gate):
        store.save(small_state(1), step=1)
        store.close()
    loaded = Store(folder, write=False).resume(need=["model", "optimizer"])
    assert loaded is not None and len(broken) >= 3


def test_a_network_that_stays_away_costs_a_save_and_nothing_older(folder: str) -> None:
    lines: list[str] = []
    store = Store(folder, failures=2, say=lines.append)
    store.save(small_state(1), step=1)
    store.wait()

    def gate(call: str, path: str, size: int) -> None:
        if "step-000000002" in path or "step-000000003" in path:
            raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), path)

    with disk.gated(gate):
        store.save(small_state(2), step=2)
        store.wait()
        store.poll()
        store.save(small_state(3), step=3)
        store.wait()
        with pytest.raises(SaveError, match=r"ETIMEDOUT.*2 saves in a row have failed"):
            store.poll()
    assert "step 2 was not saved: ETIMEDOUT" in lines[-1]
    loaded = Store(folder, say=lines.append).resume(need=["model"])
    assert loaded is not None and loaded.manifest.step == 1


def test_an_upload_that_arrives_in_part_is_no_checkpoint(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    store = Store(folder, say=lines.append)
    monkeypatch.setattr(type(store.disk._fs), "size", lambda fs, path: 7)  # type: ignore[attr-defined]
    store.save(small_state(1), step=1)
    store.wait()
    store.poll()
    assert "7 of" in lines[-1] and "bytes arrived" in lines[-1]
    assert Store(folder, write=False).resume() is None
