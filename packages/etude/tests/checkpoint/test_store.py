from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from etude.checkpoint.load import _unreadable
from etude.checkpoint.retention import Retention
from etude.checkpoint.storage import disk
from etude.checkpoint.store import Store
from etude.errors import ResumeError, SaveError, UserCodeError
from etude.units import human

from .conftest import small_state

Save = Callable[..., str]


def load_only(store: Store, state: Any) -> Any:
    store.save({"model": {}, "x": state}, step=1)
    store.close()
    return store.load("step-000000001").state["x"]


def test_a_state_comes_back_as_it_was_saved(store: Store) -> None:
    state = {
        "none": None, "true": True, "int": 3, "big": 1 << 80, "text": "é\n", "float": 0.1, "nan": float("nan"),
        "inf": -float("inf"), "bytes": b"\x00\xff", "complex": 1 + 2j, "tuple": (1, (2, [3])), "int keys": {0: "a", 1: {}},
        "$odd": {"$tensor": "no tensor"}, "counter": Counter({5: 2}), "ordered": OrderedDict(b=1, a=2),
        "deque": deque([1, 2], maxlen=3), "set": {3, 1}, "size": torch.Size([2]),
        "tensor": torch.arange(6).reshape(2, 3), "bf16": torch.ones(2, dtype=torch.bfloat16), "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3), "bool": torch.tensor([True, False]), "complex64": torch.ones(2, dtype=torch.complex64),
        "complex128": torch.full((2,), 1 + 2j, dtype=torch.complex128), "strided": torch.arange(6).reshape(2, 3).t(),
        "array": np.arange(4, dtype=np.int16).reshape(2, 2), "fp8": torch.ones(2).to(torch.float8_e4m3fn),
    }  # fmt: skip
    got = load_only(store, state)
    assert set(got) == set(state)
    for key, value in state.items():
        if isinstance(value, torch.Tensor):
            assert got[key].dtype == value.dtype and got[key].shape == value.shape, key
            assert torch.equal(got[key].view(torch.uint8) if key == "fp8" else got[key],
                               value.view(torch.uint8) if key == "fp8" else value), key  # fmt: skip
        elif isinstance(value, np.ndarray):
            assert np.array_equal(got[key], value) and got[key].dtype == value.dtype
        elif key == "nan":
            assert got[key] != got[key]
        else:
            assert got[key] == value and type(got[key]) in (type(value), dict, tuple), key
    assert list(got["ordered"]) == ["b", "a"] and got["deque"].maxlen == 3


def test_lossless_numpy_scalars_become_numbers(store: Store) -> None:
    got = load_only(store, {"lr": np.float64(0.1), "n": np.int64(3), "on": np.bool_(True), "half": np.float32(0.1)})
    assert got == {"lr": 0.1, "n": 3, "on": True, "half": float(np.float32(0.1))}
    assert [type(value) for value in got.values()] == [float, int, bool, float]


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    "value", [object(), Colour.RED, lambda: None, np.array(["a"], dtype=object), torch.eye(2).to_sparse(), print]
)
def test_what_cannot_come_back_is_refused_by_name_when_it_is_saved(store: Store, value: Any) -> None:
    state = small_state()
    state["optimizer"]["param_groups"][0]["lr"] = value
    with pytest.raises(UserCodeError, match=r"optimizer\.param_groups\[0\]\.lr"):
        store.save(state, step=1)
    assert store.resume() is None


def test_tied_weights_are_stored_once_and_come_back_under_both_names(store: Store) -> None:
    shared = torch.arange(1000.0)
    store.save({"model": {"a": shared, "b": shared, "c": shared[:10]}}, step=1)
    store.close()
    loaded = store.load("step-000000001")
    assert torch.equal(loaded.state["model"]["b"], shared)
    assert loaded.state["model"]["a"] is loaded.state["model"]["b"]
    assert loaded.manifest.files["model.safetensors"].size < 6000


def test_weights_are_a_safetensors_file_that_others_read(store: Store, save: Save) -> None:
    path = save(store, 7)
    assert torch.equal(load_file(os.path.join(path, "model.safetensors"))["w"], torch.full((4, 3), 7.0))


def test_the_manifest_holds_the_sums_that_sha256sum_prints(store: Store, save: Save) -> None:
    path = Path(save(store, 7, epoch=2, metrics={"acc": 0.5, "odd": float("nan")}))
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["step"], manifest["epoch"], manifest["metrics"]) == (7, 2, {"acc": 0.5, "odd": "nan"})
    for name, file in manifest["files"].items():
        assert hashlib.sha256((path / name).read_bytes()).hexdigest() == file["sha256"]
    assert (path.parent / "latest").read_text() == "step-000000007\n"
    assert {path.stat().st_mode & 0o777, (path / "state.json").stat().st_mode & 0o777} == {0o700, 0o600}


def test_training_may_go_on_while_a_save_is_written(store: Store) -> None:
    state = small_state(1)
    held = threading.Event()

    def gate(call: str, path: str, size: int) -> None:
        if call == "write":
            held.wait(10)

    with disk.gated(gate):
        store.save(state, step=1)
        state["model"]["w"].add_(100)
        state["optimizer"]["param_groups"][0]["lr"] = 99.0
        held.set()
        store.close()
    loaded = store.load("step-000000001").state
    assert loaded["model"]["w"].unique().tolist() == [1.0] and loaded["optimizer"]["param_groups"][0]["lr"] == 0.1


def test_a_state_may_change_its_form_before_it_is_written(store: Store) -> None:
    shared = torch.arange(6.0)
    state: dict[str, Any] = {
        "model": {"a": shared, "b": shared.view(2, 3).t(), "c": shared},
        "x": {"n": [1, {"k": shared}]},
    }
    store.save(state, step=1, hold=True)
    state["model"]["d"] = state["model"].pop("a")
    state["x"]["n"].append(2)
    state["x"]["n"][1]["k"] = torch.zeros(3)
    shared.resize_(2).fill_(-1)
    store.commit()
    store.close()
    loaded = store.load("step-000000001").state
    want = torch.arange(6.0)
    assert list(loaded["model"]) == ["a", "b", "c"] and loaded["model"]["a"] is loaded["model"]["c"]
    assert torch.equal(loaded["model"]["a"], want) and torch.equal(loaded["model"]["b"], want.view(2, 3).t())
    assert len(loaded["x"]["n"]) == 2 and torch.equal(loaded["x"]["n"][1]["k"], want)


def test_names_are_those_of_the_state_that_is_saved(store: Store) -> None:
    one, other = torch.ones(4), torch.zeros(4)
    for step, model in enumerate(
        [{"a": one, "b": other}, {"b": one, "a": other}, {"a": one, "c": other}, {"a": one, "c": one}], start=1
    ):
        store.save({"model": model}, step=step)
        store.close()
        loaded = store.load(f"step-{step:09}").state["model"]
        assert {name: value.tolist() for name, value in loaded.items()} == {n: v.tolist() for n, v in model.items()}


def test_a_second_save_waits_for_the_first(store: Store) -> None:
    for step in range(1, 6):
        store.save(small_state(step), step=step)
    store.close()
    assert [entry.step for entry in store.entries()] == [1, 2, 3, 4, 5]
    assert all(store.load(entry.name).state["model"]["w"][0, 0] == entry.step for entry in store.entries())


def test_resume_takes_the_newest_by_step_whatever_the_clock_says(store: Store, save: Save) -> None:
    for step in (3, 10, 200):
        os.utime(save(store, step), (10**9 - step, 10**9 - step))
    loaded = store.resume()
    assert loaded is not None and loaded.manifest.step == 200


def test_a_moved_folder_is_resumed(store: Store, save: Save, tmp_path: Path) -> None:
    save(store, 3)
    shutil.move(tmp_path / "checkpoints", tmp_path / "elsewhere")
    loaded = Store(tmp_path / "elsewhere").resume(need=["model", "optimizer"])
    assert loaded is not None and loaded.manifest.step == 3


def test_nothing_to_resume_is_not_an_error_but_nothing_usable_is(store: Store, save: Save, lines: list[str]) -> None:
    assert store.resume() is None
    path = Path(save(store, 3))
    (path / "state.json").write_bytes(b"{}")
    with pytest.raises(ResumeError, match=r"no usable checkpoint(.|\n)*state\.json has 2 B(.|\n)*--restart"):
        store.resume()
    assert path.exists()


def test_damage_is_named_and_the_next_older_one_is_used(store: Store, save: Save, lines: list[str]) -> None:
    save(store, 1)
    flipped = Path(save(store, 2)) / "optimizer.safetensors"
    data = bytearray(flipped.read_bytes())
    data[-1] ^= 1
    flipped.write_bytes(data)
    cut = Path(save(store, 3)) / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:50])
    (Path(save(store, 4)) / "model.safetensors").unlink()
    (Path(save(store, 5)) / "manifest.json").unlink()
    loaded = store.resume()
    assert loaded is not None and loaded.manifest.step == 1
    text = "\n".join(lines)
    assert "skipped step-000000005: it has no manifest.json" in text
    assert "skipped step-000000004: model.safetensors is missing" in text
    assert "skipped step-000000003: model.safetensors has 50 B of" in text
    assert "skipped step-000000002: checksum of optimizer.safetensors differs" in text
    assert sorted(name for name in os.listdir(store.folder) if name.startswith("broken-")) == [
        f"broken-00000000{n}" for n in (2, 3, 4, 5)
    ]


def test_a_file_of_another_checkpoint_is_noticed(store: Store, save: Save) -> None:
    one, two = Path(save(store, 1)), Path(save(store, 2))
    shutil.copy(one / "model.safetensors", two / "model.safetensors")
    with pytest.raises(ResumeError, match=r"step-000000002: checksum of model\.safetensors differs"):
        store.load("step-000000002")


def test_a_part_that_is_missing_is_never_replaced_by_a_fresh_one(store: Store, save: Save, lines: list[str]) -> None:
    save(store, 1)
    store.save({"model": small_state()["model"]}, step=2)
    store.close()
    loaded = store.resume(need=["model", "optimizer"])
    assert loaded is not None and loaded.manifest.step == 1
    assert "skipped step-000000002: it has no optimizer state" in lines
    assert (Path(store.folder) / "step-000000002").exists()  # not damaged: it stays where it is


def test_a_checkpoint_of_a_newer_format_is_refused(store: Store, save: Save) -> None:
    path = Path(save(store, 1)) / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(ResumeError, match="format 99 needs a newer etude"):
        store.load("step-000000001")


def test_what_a_newer_version_or_another_user_saved_is_not_gone_back_behind(
    store: Store, save: Save, monkeypatch: Any
) -> None:
    save(store, 1)
    newer = Path(save(store, 2)) / "manifest.json"
    good = newer.read_text()
    newer.write_text(good.replace('"format": 1', '"format": 99'))
    with pytest.raises(ResumeError, match=r"step-000000002: .*newer etude .*; --resume PATH resumes from an older one"):
        Store(store.folder).resume()
    newer.write_text(good)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(ResumeError, match=r"step-000000002: .*another user .*--trust-owner accepts it"):
        Store(store.folder).resume()
    assert {entry.step for entry in Store(store.folder).entries()} == {1, 2}


def test_names_that_leave_the_folder_and_links_are_refused(store: Store, save: Save, tmp_path: Path) -> None:
    from etude.checkpoint.manifest import Manifest, Stored

    path = Path(save(store, 1))
    outside = tmp_path / "secret"
    outside.write_bytes(b"secret")
    for name in ("../../secret", str(outside), "..", "a/b", ".hidden"):
        bad = Manifest(step=1, epoch=0, parts={"model": name}, files={name: Stored(6, ""), "state.json": Stored(1, "")})
        (path / "manifest.json").write_bytes(bad.to_json())
        with pytest.raises(ResumeError, match="refused"):
            store.load(path)
    path = Path(save(store, 2))
    target = tmp_path / "copy.safetensors"
    shutil.move(path / "model.safetensors", target)
    (path / "model.safetensors").symlink_to(target)
    with pytest.raises(ResumeError, match="is a link"):
        store.load(path)


def test_a_file_of_another_user_is_refused_unless_trusted(store: Store, save: Save, monkeypatch: Any) -> None:
    path = save(store, 1)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(ResumeError, match="belongs to another user"):
        store.load(path)
    assert Store(store.folder, trust_owner=True, write=False).load(path).manifest.step == 1


def test_leftovers_of_dead_saves_are_swept_and_named(store: Store, save: Save, lines: list[str]) -> None:
    save(store, 1)
    for name in (".step-000000002.tmp-12345", ".trash-step-000000000-1-2"):
        (Path(store.folder) / name).mkdir()
        (Path(store.folder) / name / "model.safetensors").write_bytes(b"half")
    Store(store.folder, say=lines.append)
    assert sorted(os.listdir(store.folder)) == ["latest", "step-000000001"]
    assert lines == ["removed unfinished checkpoint .step-000000002.tmp-12345"]


def failing(call: str, code: int, times: int = 10**9) -> disk.Gate:
    left = [times]

    def gate(name: str, path: str, size: int) -> None:
        if name == call and left[0] > 0:
            left[0] -= 1
            raise OSError(code, os.strerror(code), path)

    return gate


def test_a_full_disk_costs_one_save_and_training_goes_on(store: Store, save: Save, lines: list[str]) -> None:
    save(store, 1)
    with disk.gated(failing("write", errno.ENOSPC, times=1)):
        store.save(small_state(2), step=2)
        store.wait()
        (outcome,) = store.poll()
        assert outcome.error is not None
        assert sorted(os.listdir(store.folder)) == ["latest", "step-000000001"]
        save(store, 3)
    assert "step 2 was not saved: no space: need" in lines[0] and "have" in lines[0] and "step-000000001" in lines[0]
    loaded = store.resume()
    assert loaded is not None and loaded.manifest.step == 3


def test_three_failures_in_a_row_stop_the_run(store: Store, save: Save, lines: list[str]) -> None:
    save(store, 1)
    with disk.gated(failing("fsync", errno.EIO)), pytest.raises(SaveError, match=r"EIO.*3 saves in a row") as caught:
        for step in range(2, 10):
            store.save(small_state(step), step=step)
            store.wait()
            store.poll()
    assert caught.value.exit_code == 6 and len(lines) == 2
    loaded = store.resume()
    assert loaded is not None and loaded.manifest.step == 1


def test_a_disk_that_does_not_answer_is_named_and_not_waited_for_for_ever(tmp_path: Path) -> None:
    store = Store(tmp_path, patience=1.0)
    reached, release = threading.Event(), threading.Event()

    def gate(call: str, path: str, size: int) -> None:
        if call == "fsync":
            reached.set()
            release.wait(600)

    with disk.gated(gate):
        store.save(small_state(), step=5)
        assert reached.wait(600)
        with pytest.raises(SaveError, match=r"the save of step 5 .* at fsync .*model\.safetensors"):
            store.wait()
        release.set()
        store.patience = 600
        store.close()


def test_failures_are_counted_from_the_first_save_of_a_run(tmp_path: Path, lines: list[str]) -> None:
    store = Store(tmp_path, failures=2, say=lines.append)
    with disk.gated(failing("fsync", errno.EIO)):
        store.save(small_state(1), step=1)
        store.close()
        store.save(small_state(2), step=2)
        with pytest.raises(SaveError, match="2 saves in a row"):
            store.close()
    assert len(lines) == 1 and lines[0].endswith("last good: none yet; training continues")


def test_a_folder_that_cannot_even_be_read_costs_a_save_and_not_the_run(store: Store, lines: list[str]) -> None:
    def gate(call: str, path: str, size: int) -> None:
        raise OSError(errno.EIO, "bad disk")

    with disk.gated(gate):
        store.save(small_state(), step=1)
        store.close()
    said = f"step 1 was not saved: EIO {store.folder}: bad disk; last good: not known; training continues"
    assert lines == [said]


def test_an_error_is_told_with_the_path_that_it_names_or_none(store: Store, lines: list[str]) -> None:
    def refuse() -> None:
        raise ValueError("no such thing")

    with disk.gated(failing("write", errno.EIO)):
        store.save(small_state(), step=1)
        store.close()
    store.save(small_state(), step=2, first=refuse)
    store.close()
    assert lines[0].startswith(f"step 1 was not saved: EIO {store.folder}") and lines[0].count(store.folder) == 1
    assert "Input/output error;" in lines[0]
    assert lines[1].startswith("step 2 was not saved: no such thing;")


def test_the_outcome_of_a_save_tells_how_long_it_took(store: Store) -> None:
    begun = time.perf_counter()
    store.save(small_state(), step=1)
    store.wait()
    (outcome,) = store.poll()
    assert 0 < outcome.seconds <= time.perf_counter() - begun


def test_ranks_are_waited_for_half_as_long_as_a_save() -> None:
    assert Store("checkpoints", patience=600.0).patience_for_ranks == 300.0


def test_a_store_is_free_unless_a_save_is_under_way(store: Store) -> None:
    assert store.is_free()
    reached, release = threading.Event(), threading.Event()

    def gate(call: str, path: str, size: int) -> None:
        reached.set()
        release.wait(600)

    with disk.gated(gate):
        store.save(small_state(), step=1)
        assert reached.wait(600) and not store.is_free()
        release.set()
        assert store.is_free(within=600)


def test_memory_is_prepared_for_a_state_before_it_is_saved(store: Store) -> None:
    store.prepare(small_state(1))
    for step in (1, 2):
        store.save(small_state(step), step=step)
    store.close()
    assert store.load("step-000000001").state["model"]["w"].unique().tolist() == [1.0]
    assert store.load("step-000000002").state["counters"] == {"step": 2, "epoch": 0}


def test_the_best_checkpoint_has_a_pointer_that_is_written_when_it_changes(tmp_path: Path, save: Save) -> None:
    store = Store(tmp_path, retention=Retention(metric="loss"))
    renamed: list[str] = []

    def gate(call: str, path: str, size: int) -> None:
        if call == "rename" and os.path.basename(path) == "best":
            renamed.append(path)

    save(store, 1)
    assert not (tmp_path / "best").exists()
    seen = []
    with disk.gated(gate):
        for step, loss in enumerate([3.0, 2.0, 4.0, 2.0, 1.0], start=2):
            save(store, step, metrics={"loss": loss})
            seen.append((tmp_path / "best").read_text())
    assert seen == [f"step-{step:09}\n" for step in (2, 3, 3, 3, 6)] and len(renamed) == 3


def test_without_a_metric_there_is_no_pointer_to_the_best(store: Store, save: Save) -> None:
    path = save(store, 1, metrics={"loss": 1.0})
    assert not (Path(path).parent / "best").exists()


def test_a_store_that_is_opened_again_knows_the_newest_and_never_saves_over_it(store: Store, save: Save) -> None:
    for step in (3, 12):
        save(store, step)
    again = Store(store.folder)
    assert again.newest() == os.path.join(store.folder, "step-000000012") == store.newest()
    assert [os.path.basename(save(again, step)) for step in (12, 3, 13)] == [
        "step-000000012.1",
        "step-000000003.1",
        "step-000000013",
    ]
    assert Store(store.folder, write=False).newest() == os.path.join(store.folder, "step-000000013")
    assert Store("nowhere", write=False).newest() is None


def test_what_an_earlier_process_saved_is_pruned_by_the_first_save(tmp_path: Path, save: Save) -> None:
    for step in (1, 2, 3):
        save(Store(tmp_path), step)
    save(Store(tmp_path, retention=Retention(last=2)), 4)
    assert [entry.step for entry in Store(tmp_path).entries()] == [3, 4]


def test_nothing_is_pruned_while_that_is_switched_off(tmp_path: Path, save: Save) -> None:
    store = Store(tmp_path, retention=Retention(last=1))
    store.pruning = False
    for step in (1, 2, 3):
        save(store, step)
    assert [entry.step for entry in store.entries()] == [1, 2, 3]


@pytest.mark.parametrize(("last", "listings"), [(None, [1, 0, 0, 2, 0]), (2, [1, 0, 1, 2, 1])])
def test_a_save_lists_the_folder_only_if_it_may_replace_another(
    tmp_path: Path, save: Save, last: int | None, listings: list[int]
) -> None:
    store = Store(tmp_path, retention=Retention(last=last))
    seen = []
    for step in (1, 2, 3, 3, 4):
        calls: list[str] = []
        with disk.gated(lambda call, path, size, calls=calls: calls.append(call)):  # type: ignore[misc]
            save(store, step)
        seen.append(calls.count("list"))
    assert seen == listings


def test_weights_that_are_not_finite_are_saved_apart(store: Store, save: Save) -> None:
    save(store, 1)
    for odd in (float("nan"), float("inf")):
        state = small_state(2)
        state["model"]["w"][1, 1] = odd
        store.save(state, step=2, watch=["w", "b"])
        store.wait()
        (outcome,) = store.poll()
        assert outcome.unsound == "w"
    assert sorted(os.listdir(store.folder)) == [
        "diverged-000000002",
        "diverged-000000002.1",
        "latest",
        "step-000000001",
    ]
    loaded = store.resume()
    assert loaded is not None and loaded.manifest.step == 1


def test_weights_alone_are_no_candidate_for_a_resume(store: Store, save: Save) -> None:
    save(store, 1)
    path = save(store, 2, weights_only=True)
    assert os.path.basename(path) == "weights-000000002"
    assert list(store.load(path).state) == ["model"]
    loaded = store.resume()
    assert loaded is not None and loaded.manifest.step == 1


def test_going_on_from_an_older_checkpoint_sets_the_newer_ones_aside(store: Store, save: Save) -> None:
    for step in (1, 2, 3):
        save(store, step)
    store.rewind(1)
    assert [entry.step for entry in store.entries()] == [1]
    assert {"aside-000000002", "aside-000000003"} <= set(os.listdir(store.folder))


def test_the_same_step_saved_again_is_the_newest_and_replaces_the_first(tmp_path: Path, save: Save) -> None:
    store = Store(tmp_path, retention=Retention(last=2))
    save(store, 1)
    store.save(small_state(5), step=1)
    store.close()
    loaded = store.resume()
    assert loaded is not None and loaded.state["counters"]["step"] == 5
    assert [entry.name for entry in store.entries()] == ["step-000000001.1"]


def test_pruning_follows_retention(tmp_path: Path, save: Save) -> None:
    store = Store(tmp_path, retention=Retention(last=2, best=1, metric="loss", forever=4))
    for step, loss in enumerate([9.0, 0.0, float("nan"), 3.0, 5.0, 6.0, 7.0], start=1):
        save(store, step, metrics={"loss": loss})
    assert [entry.step for entry in store.entries()] == [2, 4, 6, 7]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_a_checkpoint_on_another_file_system(save: Save, lines: list[str]) -> None:
    store = Store("memory://runs/a/checkpoints", retention=Retention(last=2), say=lines.append)
    for step in (1, 2, 3):
        save(store, step)
    assert [entry.step for entry in store.entries()] == [2, 3]
    loaded = Store("memory://runs/a/checkpoints").resume(need=["model", "optimizer"])
    assert loaded is not None and loaded.manifest.step == 3
    assert torch.equal(loaded.state["model"]["w"], torch.full((4, 3), 3.0))

    with disk.gated(failing("create", errno.EIO, times=1)):  # tried again
        save(store, 4)
    with disk.gated(failing("write", errno.EIO)):
        store.save(small_state(5), step=5)
        store.wait()
        assert store.poll()[0].error is not None
    assert [entry.step for entry in store.entries()] == [3, 4]

    fs = store.disk._fs  # type: ignore[attr-defined]
    fs.pipe("/runs/a/checkpoints/step-000000009/model.safetensors", b"an upload that never ended")
    assert [entry.step for entry in Store("memory://runs/a/checkpoints", say=lines.append).entries()] == [3, 4]
    assert lines[-1] == "removed unfinished checkpoint step-000000009"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_900, "99.9 kB"),
        (100_000, "100 kB"),
        (5_200_000, "5.2 MB"),
        (3e12, "3.0 TB"),
    ],
)
def test_sizes_are_written_for_people(size: float, text: str) -> None:
    assert human(size) == text


def test_a_file_that_cannot_be_read_is_named_with_the_reason_that_is_known() -> None:
    assert str(_unreadable("x", OSError("gone"))) == "x cannot be read: gone"
    assert str(_unreadable("x", OSError(errno.EIO, "bad disk"))) == "x cannot be read: EIO bad disk"
    assert str(_unreadable("x", OSError(errno.ELOOP, "loop"))) == "refused: x is a link"
