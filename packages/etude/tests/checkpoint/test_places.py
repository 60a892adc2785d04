"""Object stores: calls that fail for a while are made again, what arrived in part is no checkpoint."""

from __future__ import annotations

import errno
import os
import uuid
from collections import Counter

import pytest

from etude.checkpoint.storage import disk, places, remote
from etude.checkpoint.storage.remote import RemoteError
from etude.checkpoint.store import Store
from etude.errors import SaveError, UserError

from .conftest import small_state


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(remote.time, "sleep", lambda seconds: None)
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


def test_a_call_is_repeated_with_longer_and_longer_waits_and_not_for_ever(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(remote.time, "sleep", waits.append)
    place, path = places.locate(folder)

    def gate(call: str, path: str, size: int) -> None:
        raise OSError(errno.ECONNRESET, "reset", path)

    with disk.gated(gate), pytest.raises(OSError, match="reset"):
        place.make_folder(path)
    assert waits == [0.1, 0.2, 0.4, 0.8]
    # A server that has answered is waited for longer: the place is right, and a failure may pass.
    waits.clear()
    assert place.names(path) == []
    with disk.gated(gate), pytest.raises(OSError, match="reset"):
        place.make_folder(path)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2]


@pytest.mark.parametrize("error", [FileNotFoundError("x"), PermissionError("x"), ValueError("x")])
def test_what_will_not_change_is_not_tried_again(folder: str, error: Exception) -> None:
    calls: list[str] = []
    place, path = places.locate(folder)

    def gate(call: str, path: str, size: int) -> None:
        calls.append(call)
        raise error

    with disk.gated(gate), pytest.raises(FileNotFoundError if "File" in repr(error) else RemoteError, match="x"):
        place.open_file(path)
    assert calls == ["open"]


def test_files_elsewhere_are_written_listed_moved_and_removed(folder: str) -> None:
    place, path = places.locate(folder)
    assert not place.RENAMES and place.names(path) == []
    place.make_folder(path), place.make_folder(path)
    place.put(place.join(path, "b"), [b"12", memoryview(b"3")])
    place.put(place.join(f"{path}/", "a"), [])
    assert place.names(path) == ["a", "b"]
    with place.open_file(place.join(path, "b")) as file:
        assert file.read() == b"123"
    place.rename(place.join(path, "b"), place.join(path, "c"))
    for _ in range(2):
        place.remove(place.join(path, "a"))
    assert place.names(path) == ["c"]
    writer = place.create(place.join(path, "d"))
    assert writer.write(b"1234") == 4 and writer.write(b"") == 0
    writer.sync(), writer.close()
    place.write_atomically(place.join(path, "e"), lambda file: file.write(b"x"))
    assert place.names(path) == ["c", "d", "e"]
    for _ in range(2):
        place.remove_tree(path)
    assert place.names(path) == []


def test_a_large_upload_is_sent_in_pieces(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "PIECE", 10)
    place, path = places.locate(folder)
    for size in (0, 9, 10, 11, 35):
        place.put(place.join(path, str(size)), [bytes(range(size))])
        with place.open_file(place.join(path, str(size))) as file:
            assert file.read() == bytes(range(size))


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("local:///a", "/a"), ("s3://a", "s3://a"), ("file", "file"),
        ("file:/a", "file:/a"), ("files://a", "files://a"), ("", ""), ("a://file", "a://file"),
    ],
)  # fmt: skip
def test_a_url_of_the_local_disk_is_a_path(path: str, local: str) -> None:
    assert places.local_path(path) == local


def test_a_url_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UserError, match=r"^what://x: "):
        places.locate("what://x")
