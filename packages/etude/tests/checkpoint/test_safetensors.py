"""A file of safetensors is written as others read it, and read only if every number in its header is right."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
import safetensors.torch
import torch

from etude.checkpoint.formats import safetensors as ours
from etude.errors import ResumeError

TENSORS = {"a": torch.arange(3, dtype=torch.uint8), "b": torch.arange(4.0).reshape(2, 2), "c": torch.ones(5).half()}


def written(named: dict[str, torch.Tensor], **options: Any) -> bytes:
    file = io.BytesIO()
    ours.write(file, named, **options)
    return file.getvalue()


def with_header(entries: Any, data: bytes = b"") -> io.BytesIO:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return io.BytesIO(len(text).to_bytes(8, "little") + text + data)


def entry(begin: Any, end: Any, shape: list[Any], dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_what_is_written_is_read_by_the_format_s_own_reader_and_by_ours() -> None:
    turned = {**TENSORS, "turned": torch.arange(6.0).reshape(2, 3).t().requires_grad_()}
    data = written(turned, metadata={"made": "here"})
    seen, metadata = [], dict[str, str]()
    ours_back = ours.read(io.BytesIO(data), watch=lambda piece: seen.append(bytes(piece)), metadata=metadata)
    for back in (safetensors.torch.load(data), ours_back):
        assert set(back) == set(turned) and all(torch.equal(back[name], turned[name]) for name in turned)
    assert b"".join(seen) == data and metadata == {"made": "here"}
    assert list(ours_back) == ["b", "turned", "c", "a"], "larger items come first"
    assert int.from_bytes(data[:8], "little") % 8 == 0, "the data begin at a multiple of eight"


def test_names_types_and_shapes_are_read_without_the_data() -> None:
    file = io.BytesIO(b"xy" + written(TENSORS))
    assert ours.size_of(file) == len(file.getvalue()) and file.tell() == 0
    skimmed = ours.skim(io.BytesIO(written(TENSORS)))
    assert {name: (one.dtype, one.shape, one.device.type) for name, one in skimmed.items()} == {
        name: (one.dtype, one.shape, "meta") for name, one in TENSORS.items()
    }


def test_metadata_are_left_out_where_there_are_none() -> None:
    metadata = {"old": "stays"}
    ours.read(io.BytesIO(written(TENSORS)), metadata=metadata)
    assert metadata == {"old": "stays"} and b"__metadata__" not in written(TENSORS)


def test_a_type_that_the_format_does_not_have_is_named() -> None:
    with pytest.raises(ValueError, match=r"^z: safetensors has no torch\.complex128$"):
        written({"a": torch.ones(1), "z": torch.ones(1, dtype=torch.complex128)})


@pytest.mark.parametrize(
    ("entries", "data", "message"),
    [
        ({"a": entry(0, 4, [4])}, b"12345", "5 bytes of data where the safetensors header says 4"),
        ({"a": entry(0, 4, [4])}, b"123", "3 bytes of data where the safetensors header says 4"),
        ({"a": entry(1, 5, [4])}, b"12345", r"does not fit its data \(a\)"),
        ({"a": entry(0, 5, [4])}, b"12345", r"does not fit its data \(a\)"),
        ({"a": entry(0, 4, [4]), "b": entry(5, 6, [1])}, b"123456", r"does not fit its data \(b\)"),
        ({"a": entry(0, 4, [-4])}, b"1234", r"is damaged \(a\)"),
        ({"a": entry(0, 4, [4.0])}, b"1234", r"is damaged \(a\)"),
        ({"a": entry(0, True, [True])}, b"1", r"is damaged \(a\)"),
        ({"a": entry(0, 4, [4], "X8")}, b"1234", r"is damaged \('X8'\)"),
        ({"a": entry(0, "4", [4])}, b"1234", r"is damaged \(a\)"),
        ({"a": {}}, b"", r"is damaged \('data_offsets'\)"),
        ([1], b"", "is damaged"),
        (b"{", b"", "is damaged"),
    ],
)  # fmt: skip
def test_a_header_that_does_not_fit_is_refused(entries: Any, data: bytes, message: str) -> None:
    for read in (ours.read, ours.skim):
        with pytest.raises(ResumeError, match=message):
            read(with_header(entries, data))


def test_a_message_about_a_header_is_short() -> None:
    with pytest.raises(ResumeError) as caught:
        ours.read(with_header({"a": entry(0, 4, [4], "X" * 500)}, b"1234"))
    assert str(caught.value).count("X") == 79


def test_empty_tensors_and_files_without_any_are_read() -> None:
    made = ours.read(
        with_header({"a": entry(0, 0, [0, 3], "F32"), "b": entry(0, 2, [2]), "c": entry(2, 2, [0])}, b"12")
    )
    assert {name: tuple(one.shape) for name, one in made.items()} == {"a": (0, 3), "b": (2,), "c": (0,)}
    assert ours.read(with_header({})) == {}


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 9, 20])
def test_a_file_that_ends_within_its_header_is_refused(cut: int) -> None:
    with pytest.raises(ResumeError, match="header is cut short"):
        ours.read(io.BytesIO(written(TENSORS)[:cut]))


def test_a_header_may_fill_the_file_and_no_more() -> None:
    assert ours.read(with_header(b"{}      ")) == {}
    longer = io.BytesIO((9).to_bytes(8, "little") + b"{}      ")
    with pytest.raises(ResumeError, match="cut short or too large"):
        ours.read(longer)
    longer.seek(0)
    with pytest.raises(ResumeError, match="header is cut short$"):
        ours.read(longer, size=17)


def test_a_header_larger_than_any_honest_one_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "MAX_HEADER", 16)
    assert ours.read(with_header(b"{}".ljust(16))) == {}
    with pytest.raises(ResumeError, match="too large"):
        ours.read(with_header(b"{}".ljust(17)))


def test_a_file_that_ends_within_its_data_is_refused() -> None:
    data = written(TENSORS)
    with pytest.raises(ResumeError, match="the file is cut short"):
        ours.read(io.BytesIO(data[:-1]), size=len(data))


def test_memory_is_filled_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "PIECE", 4)
    view, seen = memoryview(bytearray(10)), []
    file = io.BytesIO(b"0123456789ab")
    ours.fill(file, view, lambda piece: seen.append(bytes(piece)))
    assert bytes(view) == b"0123456789" and seen == [b"0123", b"4567", b"89"] and file.tell() == 10


def pieces(**places: Any) -> dict[str, str]:
    return {ours.PIECES: json.dumps(places)}


def test_pieces_of_several_files_are_joined_where_they_belong() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    files = [
        ({"w": whole[:2, :3], "whole": torch.ones(1)}, pieces(w=[[3, 4], [0, 0]])),
        ({"w": whole[:2, 3:]}, pieces(w=[[3, 4], [0, 3]])),
        ({"w": whole[2:], "other": torch.zeros(2)}, pieces(w=[[3, 4], [2, 0]])),
        ({"last": torch.zeros(3)}, {}),
    ]
    made = ours.put_together(files)
    assert torch.equal(made["w"], whole) and made["w"].dtype == whole.dtype
    assert {name: one.numel() for name, one in made.items()} == {"whole": 1, "other": 2, "last": 3, "w": 12}
    with pytest.raises(ResumeError, match="the pieces of w do not make up the whole"):
        ours.put_together(files[:2])
