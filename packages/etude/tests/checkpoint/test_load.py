"""Nothing of a checkpoint is used that is not as it was written."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.checkpoint import load as reading
from etude.checkpoint import manifest as manifests
from etude.checkpoint.load import load, read_manifest, verify
from etude.checkpoint.manifest import Damaged, Stored, Withheld
from etude.checkpoint.storage.places import LocalDisk
from etude.checkpoint.store import Store
from etude.errors import ResumeError

from .conftest import small_state

DISK = LocalDisk()


@pytest.fixture
def path(store: Store) -> Path:
    store.save(small_state(3), step=3)
    store.close()
    return Path(store.folder, "step-000000003")


def planted(path: Path, name: str, data: bytes) -> None:
    """Replace a file and sign it, as a program with an error of its own would write it."""
    (path / name).write_bytes(data)
    manifest = manifests.parse((path / "manifest.json").read_bytes())
    stored = Stored(len(data), hashlib.sha256(data).hexdigest())
    (path / "manifest.json").write_bytes(replace(manifest, files={**manifest.files, name: stored}).to_json())


def test_all_parts_are_read_or_those_that_are_asked_for(path: Path) -> None:
    assert set(load(DISK, str(path)).state) == {"model", "optimizer", "counters"}
    assert set(load(DISK, str(path), only=["model", "nobody"]).state) == {"model"}
    assert load(DISK, str(path), only=[]).state == {}
    loaded = load(DISK, str(path), need=["model", "counters"], only=["counters"])
    assert loaded.state == {"counters": {"step": 3, "epoch": 0}} and loaded.path == str(path)


def test_a_part_that_is_needed_is_missed_by_name(path: Path) -> None:
    with pytest.raises(ResumeError, match=r"^it has no models state \(it has model\)$"):
        load(DISK, str(path), need=["model", "models"])
    with pytest.raises(ResumeError, match=r"^it has no ema state$"):
        load(DISK, str(path), need=["ema"])


def test_what_is_not_asked_for_need_not_be_whole(path: Path) -> None:
    (path / "optimizer.safetensors").write_bytes(b"x")
    assert load(DISK, str(path), only=["model"]).state["model"]["w"].unique().tolist() == [3.0]
    for call in (load, verify):
        with pytest.raises(Damaged, match=r"^optimizer\.safetensors has 1 B of .* \(1 of \d+ bytes\)$"):
            call(DISK, str(path))


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_every_byte_of_a_file_counts(path: Path, name: str) -> None:
    assert verify(DISK, str(path)).step == 3
    good = (path / name).read_bytes()
    for place in (0, len(good) // 2, len(good) - 1):
        data = bytearray(good)
        data[place] ^= 1
        (path / name).write_bytes(data)
        with pytest.raises(Damaged, match=f"^checksum of {name} differs$"):
            verify(DISK, str(path))
        with pytest.raises(Damaged, match=f"^({name}: |checksum of {name} differs)"):
            load(DISK, str(path))
    (path / name).unlink()
    with pytest.raises(Damaged, match=f"^{name} is missing$"):
        verify(DISK, str(path))


def test_a_large_file_is_read_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 7)
    assert verify(DISK, str(path)).step == 3 and load(DISK, str(path)).state["counters"]["step"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "^state.json is not JSON$"), (b"[" * 100_000, "^state.json is not JSON$"),
        (b"[]", "^state.json is not a JSON object$"), (b"{}", "^the state of model is damaged"),
        (b'{"model": {"$tensor": "none"}}', r"^the state of model is damaged \(KeyError\('none'\)\)$"),
        (b'{"model": {"$deque": []}}', "^the state of model is damaged"),
    ],
)  # fmt: skip
def test_a_state_that_cannot_be_decoded_is_damaged(path: Path, text: bytes, message: str) -> None:
    planted(path, "state.json", text)
    with pytest.raises(Damaged, match=message):
        load(DISK, str(path))


def test_a_tensor_file_that_is_none_is_damaged(path: Path) -> None:
    planted(path, "model.safetensors", b"\xff" * 40)
    with pytest.raises(Damaged, match=r"^model\.safetensors: "):
        load(DISK, str(path))
    assert verify(DISK, str(path)).step == 3


def test_a_manifest_and_a_state_may_be_as_large_as_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size, state = (path / "manifest.json").stat().st_size, (path / "state.json").stat().st_size
    monkeypatch.setattr(manifests, "MAX_SIZE", size)
    monkeypatch.setattr(reading, "MAX_STATE", state)
    assert load(DISK, str(path)).manifest.step == 3
    monkeypatch.setattr(reading, "MAX_STATE", state - 1)
    with pytest.raises(ResumeError, match=r"^refused: state\.json is too large$"):
        load(DISK, str(path))
    monkeypatch.setattr(manifests, "MAX_SIZE", size - 1)
    with pytest.raises(ResumeError, match="^refused: its manifest is too large$"):
        read_manifest(DISK, str(path))


def test_a_folder_without_a_manifest_is_damaged_and_one_that_cannot_be_read_is_not(path: Path) -> None:
    with pytest.raises(Damaged, match=r"^it has no manifest\.json$"):
        read_manifest(DISK, str(path / "nowhere"))
    (path / "manifest.json").unlink()
    (path / "manifest.json").symlink_to(path / "state.json")
    with pytest.raises(ResumeError, match=r"^refused: manifest\.json is a link$") as caught:
        read_manifest(DISK, str(path))
    assert not isinstance(caught.value, Damaged)


def test_files_of_another_user_need_trust(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    for call in (load, verify, read_manifest):
        with pytest.raises(Withheld, match=rf"^refused: manifest\.json belongs to another user \(uid {uid}\)"):
            call(DISK, str(path))  # type: ignore[operator]
        call(DISK, str(path), trust_owner=True)  # type: ignore[operator]


class Failing(io.FileIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError(errno.EIO, "bad disk")


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "model.safetensors"])
def test_a_disk_that_fails_while_it_is_read_is_named_with_the_file(path: Path, name: str) -> None:
    class Half(LocalDisk):
        def open_file(self, path: str) -> Any:  # type: ignore[override]
            return Failing(path) if path.endswith(name) else DISK.open_file(path)

    for call in (load, verify):
        with pytest.raises(ResumeError, match=f"^{name} cannot be read: EIO bad disk$") as caught:
            call(Half(), str(path))  # type: ignore[operator]
        assert not isinstance(caught.value, Damaged)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("gone"), "x cannot be read: gone"), (OSError(errno.EIO, "bad"), "x cannot be read: EIO bad"),
        (OSError(errno.EPERM, "no"), "x cannot be read: EPERM no"), (OSError(errno.ELOOP, "loop"), "refused: x is a link"),
    ],
)  # fmt: skip
def test_an_error_has_its_code(error: OSError, said: str) -> None:
    assert str(reading._unreadable("x", error)) == said
