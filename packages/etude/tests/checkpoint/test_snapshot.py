"""The copies of a state in host memory, and the files that they become."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from etude.checkpoint.formats.safetensors import PIECES
from etude.checkpoint.snapshot import Arena, Region, Snapshot, file_names, padded
from etude.dist.layout.shards import Piece

DTYPES = (torch.uint8, torch.float16, torch.float32, torch.float64, torch.complex64, torch.bool)


def written(snapshot: Snapshot) -> dict[str, bytes]:
    return {file.name: b"".join(file.pieces) for file in snapshot.files}


@pytest.mark.parametrize(("size", "room"), [(0, 0), (1, 64), (63, 64), (64, 64), (65, 128), (6400, 6400)])
def test_parts_begin_at_multiples_of_64_bytes(size: int, room: int) -> None:
    assert padded(size) == room


@example([[(torch.float32, 16)]] * 4)
@example([[(torch.uint8, 1), (torch.float64, 1)]] * 3)
@given(st.lists(st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 40)), max_size=5), max_size=4))
def test_tensors_of_any_sizes_share_a_memory_and_not_a_byte(parts: list[list[tuple[torch.dtype, int]]]) -> None:
    state = {
        f"part{number}": [
            torch.full((count,), number + place + 1).to(dtype) for place, (dtype, count) in enumerate(part)
        ]
        for number, part in enumerate(parts)
    }
    arena = Arena()
    snapshot = arena.take(state)
    memory = snapshot.files
    assert sum(len(file.pieces[1]) for file in memory[:-1]) == sum(
        one.nbytes for part in state.values() for one in part
    )
    for name, tensors in state.items():
        if tensors:
            views = snapshot._regions[name].views
            assert [view.tolist() for view in views] == [one.tolist() for one in tensors]


def test_a_state_that_grows_or_changes_is_laid_out_anew_and_one_that_stays_is_not() -> None:
    arena = Arena()
    arena.prepare(1 << 12)
    where = []
    for model in ([1.0], [2.0], [3.0, 3.0], [4.0]):
        snapshot = arena.take({"model": {"w": torch.tensor(model)}, "counters": {"step": 1}})
        assert written(snapshot)["model.safetensors"].endswith(torch.tensor(model).numpy().tobytes())
        where.append(snapshot._regions["model"])
    assert where[0] is where[1] and len({id(one) for one in where}) == 3


def test_the_memory_of_a_snapshot_is_used_for_the_next_one_if_it_is_large_enough() -> None:
    arena, taken = Arena(), []
    for shape in ((8, 8), (4, 16), (2, 3), (64,), (65,)):
        taken.append(arena.take({"model": {"w": torch.ones(shape)}}))
    places = [torch.frombuffer(one.files[0].pieces[1], dtype=torch.float32).data_ptr() for one in taken]
    assert len(set(places[:4])) == 1 and places[4] != places[0]


def test_a_header_is_made_once_for_the_same_names_and_metadata() -> None:
    named = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.float64)}
    region = Region(0, 24, list(named.values()))
    first = region.head(named, {})
    assert region.head(dict(named), {}) is first
    other = region.head(named, {"c": "a"})
    assert other != first and region.head(named, {"c": "a"}) is other
    # Larger items first, as their bytes are.
    places = json.loads(first[8:])
    assert places["b"]["data_offsets"] == [0, 16] and places["a"]["data_offsets"] == [16, 24]
    renamed = region.head({"x": named["a"], "b": named["b"]}, {})
    assert "x" in json.loads(renamed[8:])


def test_texts_are_written_as_they_are_read() -> None:
    snapshot = Arena().take({"model": {"w": torch.ones(1)}, "hook.é": {"name": "é"}})
    assert snapshot.parts == {"model": "model.safetensors", "hook.é": None}
    tree = written(snapshot)["state.json"].decode()
    assert '"é"' in tree and json.loads(tree)["hook.é"] == {"name": "é"}
    assert [file.size for file in snapshot.files] == [len(text) for text in written(snapshot).values()]


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "bad"),
    [
        (torch.tensor([1.0, NAN]), True), (torch.tensor([INF, 1.0]), True), (torch.tensor([1.0, -INF]), True),
        (torch.tensor([1.0, -2.0]), False), (torch.zeros(0), False), (torch.tensor([1, 2]), False),
        (torch.tensor([True]), False), (torch.tensor([NAN], dtype=torch.float16), True),
        (torch.tensor([NAN], dtype=torch.bfloat16), True), (torch.tensor(NAN, dtype=torch.float64), True),
        # These are not looked at: torch has no smallest one of them.
        (torch.tensor([NAN]).to(torch.float8_e4m3fn), False), (torch.tensor([complex(NAN, 0)]), False),
    ],
)  # fmt: skip
def test_a_weight_that_is_not_finite_is_found_by_its_name(value: torch.Tensor, bad: bool) -> None:
    snapshot = Arena().take({"model": {"good": torch.ones(2), "w": value, "none": 3}, "other": {"w": 1}})
    assert snapshot.unsound("model", ["missing", "none", "good", "w"]) == ("w" if bad else None)
    assert snapshot.unsound("model", ["good"]) is None
    assert snapshot.unsound("other", ["w"]) is None and snapshot.unsound("nobody", ["w"]) is None


def test_a_file_is_called_like_its_part_where_that_is_harmless() -> None:
    names = ["model", "Model", "a/b", "../x", "", "é", "hook.Ema#2", "x" * 300, "x" * 301, "model"]
    plain = [name.removesuffix(".safetensors") for name in file_names(names)]
    assert plain == [
        "model", "Model#1", "a_b", "_x", "part", "_", "hook.Ema#2", "x" * 100, f"{'x' * 100}#8", "model#9",
    ]  # fmt: skip
    assert list(file_names(["model", "MODEL"], rank=3)) == ["model.rank-3.safetensors", "MODEL#1.rank-3.safetensors"]


@given(st.lists(st.text(max_size=4), max_size=6), st.integers(0, 2))
def test_no_two_parts_have_one_file(parts: list[str], rank: int) -> None:
    names = list(file_names(parts, rank))
    assert len({name.lower() for name in names}) == len(parts)
    assert all("/" not in name and not name.startswith(".") for name in names)


def test_the_ranks_after_the_first_write_their_pieces_alone() -> None:
    def piece(rows: int, **options: bool) -> Piece:
        return Piece(torch.full((rows, 2), 7.0), (8, 2), (4, 0), **{"saved_here": True, **options})

    pieces = {"w": piece(3), "copy": piece(3, saved_here=False), "none": piece(0), "whole": torch.ones(2)}
    state: dict[str, Any] = {"model": pieces, "counters": {"step": 1}}
    snapshot = Arena(rank=1).take(state)
    assert snapshot.parts == {"model": "model.rank-1.safetensors", "counters": None}
    ((name, data),) = written(snapshot).items()
    assert name == "model.rank-1.safetensors" and data.endswith(torch.full((3, 2), 7.0).numpy().tobytes())
    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert json.loads(head.pop("__metadata__")[PIECES]) == {"w": [[8, 2], [4, 0]]} and list(head) == ["w"]
    assert Arena(rank=1).take({"model": {"w": torch.ones(2)}}).files == ()
    assert list(written(Arena().take(state))) == ["model.safetensors", "state.json"]
