"""Damaged and hostile bytes in every file of a checkpoint: noticed, named, never used, never run."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import struct
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.checkpoint.formats import foreign
from etude.checkpoint.load import load, read_manifest, verify
from etude.checkpoint.storage.places import LocalDisk
from etude.checkpoint.store import Store
from etude.errors import EtudeError, ResumeError
from tests.sampling import examples

from .test_every_call import state

FILES = ("manifest.json", "state.json", "model.safetensors", "optimizer.safetensors")


@pytest.fixture(scope="module")
def pristine() -> Iterator[Path]:
    """A folder with two checkpoints; tests copy it."""
    folder = Path(tempfile.mkdtemp(prefix="etude-damage-"))
    store = Store(folder)
    for step in (1, 2):
        store.save(state(step), step=step)
    store.close()
    yield folder
    shutil.rmtree(folder)


def damaged(pristine: Path, name: str, change: Any) -> tuple[Store, list[str], Path]:
    folder = Path(tempfile.mkdtemp(prefix="etude-damaged-"))
    shutil.copytree(pristine, folder, dirs_exist_ok=True)
    path = folder / "step-000000002" / name
    path.write_bytes(change(path.read_bytes()))
    lines: list[str] = []
    return Store(folder, say=lines.append), lines, folder


def outcome(pristine: Path, name: str, change: Any) -> int:
    """The step that is resumed from when one file of the newest checkpoint is changed."""
    store, lines, folder = damaged(pristine, name, change)
    try:
        loaded = store.resume(need=["model", "optimizer", "counters"])
        assert loaded is not None
        step = loaded.manifest.step
        assert (
            loaded.state["model"]["w"].unique().tolist() == [float(step)] and loaded.state["counters"]["step"] == step
        )
        assert loaded.state["optimizer"]["state"][0]["moment"].unique().tolist() == [step / 2]
        assert step == 2 or any(line.startswith("skipped step-000000002") for line in lines)
        return step
    finally:
        shutil.rmtree(folder)


@settings(max_examples=examples(150))
@given(name=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_one_flipped_bit_is_noticed_wherever_it_is(pristine: Path, name: str, where: float, bit: int) -> None:
    def flip(data: bytes) -> bytes:
        at = int(where * len(data))
        return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]

    step = outcome(pristine, name, flip)
    assert step == 1 or name == "manifest.json"  # a manifest may read the same: a space that became another space


@settings(max_examples=examples(60))
@given(name=st.sampled_from(FILES), share=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_short_is_noticed(pristine: Path, name: str, share: float) -> None:
    assert outcome(pristine, name, lambda data: data[: int(share * len(data))]) == 1


@settings(max_examples=examples(40))
@given(name=st.sampled_from(FILES), share=st.floats(0, 1, exclude_max=True))
def test_a_tail_of_zeros_is_noticed(pristine: Path, name: str, share: float) -> None:
    def zero(data: bytes) -> bytes:
        keep = int(share * len(data))
        return data[:keep] + b"\0" * (len(data) - keep)

    step = outcome(pristine, name, zero)
    with open(pristine / "step-000000002" / name, "rb") as file:
        whole = file.read()
    assert step == 1 or zero(whole) == whole


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
@pytest.mark.parametrize("name", FILES)
def test_the_newest_truncated_means_the_one_before_is_used(pristine: Path, name: str, share: float) -> None:
    assert outcome(pristine, name, lambda data: data[: int(share * len(data))]) == 1


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("name", [*FILES, "optimizer.pth", "rng.pkl", ".metadata", "data.pkl", "__init__.py"])
def test_a_pickle_planted_anywhere_in_a_checkpoint_does_not_run(pristine: Path, tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    shutil.copytree(pristine, tmp_path / "run")
    target = tmp_path / "run" / "step-000000002"
    forms = [pickle.dumps(Hostile(marker)), pickle.dumps(Hostile(marker), protocol=0)]
    torch.save({"model": Hostile(marker)}, tmp_path / "zip")
    torch.save({"model": Hostile(marker)}, tmp_path / "old", _use_new_zipfile_serialization=False)
    forms += [(tmp_path / "zip").read_bytes(), (tmp_path / "old").read_bytes()]
    for form in forms:
        (target / name).write_bytes(form)
        for read in (
            lambda: Store(tmp_path / "run", write=False, say=lambda line: None).resume(),
            lambda: load(LocalDisk(), str(target)),
            lambda: verify(LocalDisk(), str(target)),
            lambda: foreign.read(target / name),
            lambda: foreign.read(target),
        ):
            with contextlib.suppress(EtudeError):
                read()
        assert not marker.exists()


def test_a_folder_of_distributed_checkpoints_with_a_hostile_metadata_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "dcp").mkdir()
    (tmp_path / "dcp" / ".metadata").write_bytes(pickle.dumps(Hostile(marker)))
    with pytest.raises(ResumeError, match="pickle"):
        foreign.read(tmp_path / "dcp")
    with pytest.raises(ResumeError, match=r"refused: global (posix|os)\.system"):
        foreign.read(tmp_path / "dcp" / ".metadata")
    assert not marker.exists()


@settings(max_examples=examples(150))
@given(data=st.data(), name=st.sampled_from(["manifest.json", "model.safetensors"]))
def test_readers_of_foreign_bytes_answer_with_an_error_or_the_truth(pristine: Path, data: Any, name: str) -> None:
    """Mutated real files: an error of ours or verified content, quickly and without much memory."""
    original = (pristine / "step-000000002" / name).read_bytes()
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, min(len(mutated) - 1, 400)))
        mutated[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=6))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(bytes(mutated))
        tracemalloc.start()
        try:
            read_manifest(LocalDisk(), folder) if name == "manifest.json" else foreign.read(path)
        except EtudeError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 100 << 20


def test_header_bombs_are_refused_before_anything_is_allocated(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,18446744073709551616]}}'
    (tmp_path / "bomb.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (tmp_path / "deep.safetensors").write_bytes(struct.pack("<Q", 200_000) + b'{"a":' * 40_000)
    (tmp_path / "long.safetensors").write_bytes(struct.pack("<Q", 1 << 40) + b"{" * 64)
    for name in ("bomb", "deep", "long"):
        with pytest.raises(ResumeError):
            foreign.read(tmp_path / f"{name}.safetensors")
