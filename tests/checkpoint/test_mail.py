"""What ranks tell each other about a sharded save. The group has two ranks; this process plays both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import distributed

from etude.checkpoint.distributed import Crew, Mailbox
from etude.checkpoint.manifest import Stored
from etude.errors import PeerError


@pytest.fixture(autouse=True)
def two_ranks() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    assert FakeStore
    distributed.init_process_group("fake", store=distributed.HashStore(), rank=0, world_size=2)
    yield
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
    crew = Crew(lambda: 0.02)
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
    assert Crew(lambda: 0.0).mail._store is not crew.mail._store
