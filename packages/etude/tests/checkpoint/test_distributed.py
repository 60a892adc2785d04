"""What ranks tell each other about a sharded save. The group has two ranks; this process plays both."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from etude.checkpoint.manifest import Stored
from etude.checkpoint.ranks import distributed as ranks
from etude.checkpoint.ranks.distributed import Follower, Leader, Mailbox, ShardWriters
from etude.checkpoint.storage import chaos, disk
from etude.dist import group
from etude.dist.layout.shards import Piece
from etude.errors import PeerError, ResumeError

Become = Callable[[int], None]


@pytest.fixture(autouse=True)
def become(monkeypatch: pytest.MonkeyPatch) -> Iterator[Become]:
    """Make this process another rank of the same group, from rank 0 on."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    assert FakeStore
    meeting_place = distributed.HashStore()

    def be(rank: int) -> None:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        distributed.init_process_group("fake", store=meeting_place, rank=rank, world_size=2)
        # Every rank counts its own saves.
        monkeypatch.setattr(ranks, "_saves", itertools.count())

    be(0)
    yield be
    distributed.destroy_process_group()


def test_a_letter_is_read_by_its_key_and_forgotten() -> None:
    first, second, other = Mailbox("a"), Mailbox("a"), Mailbox("b")
    first.put("key", {"x": [1, 2]})
    assert second.get("key", lambda: 0.0, "rank 0") == {"x": [1, 2]}
    second.forget("key"), second.forget("never")
    for box in (second, other):
        with pytest.raises(PeerError, match="^rank 0 has not written its share of a checkpoint for 0 s$"):
            box.get("key", lambda: 0.02, "rank 0")


def test_rank_0_hears_of_bad_weights_files_and_errors() -> None:
    crew = ShardWriters(lambda: 0.02)
    assert list(crew.ranks) == [1]
    for said, bad in (("", None), ("layer.w", "layer.w")):
        crew.mail.put("ready/1", said)
        assert crew.unsound() == bad
    crew.begin("step-1")
    assert crew.mail.get("place", lambda: 0.0, "rank 0") == "step-1"
    crew.mail.put("done/1", {"error": "", "files": {"m.rank-1": [5, "abc"]}, "parts": {"model": "m.rank-1"}})
    assert crew.end() == ({"m.rank-1": Stored(5, "abc")}, {"model": ("m.rank-1",)})
    with pytest.raises(PeerError, match="rank 0"):
        crew.mail.get("place", lambda: 0.0, "rank 0")
    crew.mail.put("done/1", {"error": "host: disk full"})
    with pytest.raises(OSError, match="^rank 1 on host: disk full$"):
        crew.end()
    assert ShardWriters(lambda: 0.0).mail._store is not crew.mail._store


def share_of(rank: int, value: float = 1.0) -> dict[str, Any]:
    """Return the state of a rank: half of the rows of a tensor, and what only rank 0 saves."""
    rows = torch.full((2, 3), value + rank)
    return {"model": {"w": Piece(rows, (4, 3), (2 * rank, 0), saved_here=True)}, "counters": {"step": 1}}


@pytest.fixture
def follower(become: Become, tmp_path: Path) -> Iterator[Follower]:
    """The store of rank 1; this process is rank 0 afterwards."""
    become(1)
    made = Follower(tmp_path)
    made.patience_for_ranks = 20.0
    yield made
    made.wait()


def test_two_ranks_save_one_checkpoint_that_a_single_process_reads(
    become: Become, follower: Follower, tmp_path: Path
) -> None:
    follower.prepare(share_of(1))
    follower.save(share_of(1), step=5)
    become(0)
    leader = Leader(tmp_path, patience=40.0)
    leader.save(share_of(0), step=5)
    leader.close(), follower.close()
    loaded = leader.load("step-000000005")
    assert loaded.state["model"]["w"].tolist() == [[1.0] * 3] * 2 + [[2.0] * 3] * 2
    assert loaded.manifest.shards == {"model": ("model.rank-1.safetensors",)}
    found = leader.resume(need=["model"])
    assert found is not None and found.path == loaded.path and follower.prune() == []
    assert leader.is_free() and follower.is_free()
    assert sorted(os.listdir(tmp_path)) == ["latest", "step-000000005"]


def test_a_save_that_is_held_back_is_written_when_both_ask_for_it(
    become: Become, follower: Follower, tmp_path: Path
) -> None:
    follower.save(share_of(1), step=5, hold=True)
    become(0)
    leader = Leader(tmp_path, patience=40.0)
    leader.save(share_of(0), step=5, hold=True)
    assert leader.is_free() and os.listdir(tmp_path) == []
    follower.commit(), leader.commit()
    leader.close(), follower.close()
    assert [entry.step for entry in leader.entries()] == [5]


@pytest.mark.parametrize("where", [0, 1])
def test_a_weight_that_is_not_finite_on_any_rank_makes_a_checkpoint_apart(
    become: Become, follower: Follower, tmp_path: Path, where: int
) -> None:
    values = [1.0, 1.0]
    values[where] = float("nan")
    follower.save(share_of(1, values[1]), step=5, watch=["w"])
    become(0)
    leader = Leader(tmp_path, patience=40.0)
    leader.save(share_of(0, values[0]), step=5, watch=["w"])
    leader.wait(), follower.wait()
    (outcome,) = leader.poll()
    assert outcome.unsound == "w" and os.listdir(tmp_path) == ["diverged-000000005"]


def test_a_disk_that_fails_for_one_rank_costs_the_save_of_all_and_is_named(
    become: Become, follower: Follower, tmp_path: Path
) -> None:
    def gate(call: str, path: str, size: int) -> None:
        if call == "write" and "rank-1" in path:
            raise OSError(errno.EIO, "bad disk", path)

    lines: list[str] = []
    with disk.gated(gate):
        follower.save(share_of(1), step=5)
        become(0)
        leader = Leader(tmp_path, patience=40.0, say=lines.append)
        leader.save(share_of(0), step=5)
        leader.close(), follower.close()
    assert "rank 1 on " in lines[0] and "bad disk" in lines[0] and os.listdir(tmp_path) == []


def test_a_rank_hears_that_there_is_no_folder_to_write_into(become: Become, follower: Follower, tmp_path: Path) -> None:
    def gate(call: str, path: str, size: int) -> None:
        if call == "mkdir" and "step-" in path:
            raise OSError(errno.ENOSPC, "full", path)

    lines: list[str] = []
    with disk.gated(gate):
        follower.save(share_of(1), step=5)
        become(0)
        leader = Leader(tmp_path, patience=40.0, say=lines.append)
        leader.save(share_of(0), step=5)
        leader.close(), follower.close()
    assert len(lines) == 1 and "step 5 was not saved" in lines[0] and os.listdir(tmp_path) == []


def test_a_rank_without_shards_saves_nothing_and_asks_nobody(
    become: Become, follower: Follower, tmp_path: Path
) -> None:
    whole = {"model": {"w": torch.ones(3)}}
    follower.prepare(whole), follower.save(whole, step=1)
    assert follower.is_free() and os.listdir(tmp_path) == []
    become(0)
    leader = Leader(tmp_path, patience=40.0)
    leader.save(whole, step=1)
    leader.close()
    assert leader.load("step-000000001").manifest.shards == {}


def test_the_share_of_a_rank_is_announced_by_its_file(become: Become, follower: Follower, tmp_path: Path) -> None:
    heard: list[str] = []
    chaos.listen("save.done", lambda path: heard.append(os.path.basename(path)))
    try:
        follower.save(share_of(1), step=5)
        become(0)
        leader = Leader(tmp_path, patience=40.0)
        leader.save(share_of(0), step=5)
        leader.close(), follower.close()
    finally:
        chaos.listen("save.done", None)
    assert sorted(heard) == ["model.rank-1.safetensors", "step-000000005"]


def test_a_rank_that_keeps_silent_ends_the_save(tmp_path: Path) -> None:
    leader = Leader(tmp_path, patience=600.0)
    leader.patience_for_ranks = 0.02
    leader.save(share_of(0), step=5)
    leader.wait()
    with pytest.raises(PeerError, match="rank 1 has not written its share"):
        leader.poll()
    assert os.listdir(tmp_path) == []


def test_a_store_that_is_busy_says_so_to_all_ranks(tmp_path: Path) -> None:
    leader = Leader(tmp_path, patience=40.0)
    reached, release = threading.Event(), threading.Event()

    def gate(call: str, path: str, size: int) -> None:
        reached.set()
        release.wait(600)

    with disk.gated(gate):
        leader.save({"model": {"w": torch.ones(3)}}, step=1)
        assert reached.wait(600) and not leader.is_free()
        release.set()
        leader.close()
    assert leader.is_free(within=600)


def test_a_checkpoint_is_read_by_every_rank_or_by_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(tmp_path, patience=40.0)
    assert leader.resume() is None
    leader.save({"model": {"w": torch.ones(3)}}, step=1)
    leader.close()
    monkeypatch.setattr(group, "ask", lambda question: [None, "host: model.safetensors is missing"])
    with pytest.raises(ResumeError, match=r"^step-000000001: rank 1 on host: model\.safetensors is missing$"):
        leader.load("step-000000001")
    monkeypatch.setattr(group, "ask", lambda question: [None, ""])
    assert leader.load("step-000000001").manifest.step == 1


def test_another_rank_reads_what_rank_0_found(
    follower: Follower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = Leader(tmp_path)
    single.save({"model": {"w": torch.ones(3)}}, step=1)
    single.close()
    path, answers = str(tmp_path / "step-000000001"), list[str]()

    def found(path: str | None) -> Callable[..., str | None]:
        def first(call: Any, answer: Any = None) -> str | None:
            if path is not None:
                answers.append(answer(path))
            return path

        return first

    monkeypatch.setattr(group, "first", found(None))
    assert follower.resume() is None
    monkeypatch.setattr(group, "first", found(path))
    loaded = follower.resume(need=["model"])
    assert loaded is not None and loaded.path == path and answers == [""]
    (tmp_path / "step-000000001" / "model.safetensors").unlink()
    follower.resume()
    assert answers[1].endswith("step-000000001: model.safetensors is missing")


def test_only_rank_0_removes_what_a_dead_save_left(become: Become, tmp_path: Path) -> None:
    (tmp_path / ".step-000000001.tmp-1").mkdir()
    become(1)
    Follower(tmp_path, write=True)
    assert os.listdir(tmp_path) == [".step-000000001.tmp-1"]
    become(0)
    Leader(tmp_path, say=print)
    assert os.listdir(tmp_path) == []
