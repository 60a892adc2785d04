"""Which states are copied in one stroke, and which are left to the encoder."""

from __future__ import annotations

from collections import Counter, OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.checkpoint.capture import DTYPE, SHAPE, Forms, capture
from etude.checkpoint.encode import MAX_DEPTH, encode
from etude.errors import UserCodeError

Pair = namedtuple("Pair", "a b")
WRAPS: list[Callable[[Any], Any]] = [lambda x: [x], lambda x: {"k": x}, lambda x: OrderedDict(k=x), lambda x: (x,)]


def nested(leaf: Any, depth: int, *wraps: Callable[[Any], Any]) -> Any:
    for number in range(depth):
        leaf = wraps[number % len(wraps)](leaf)
    return leaf


@pytest.mark.parametrize("wrap", WRAPS)
def test_containers_are_captured_to_the_depth_that_can_be_encoded(wrap: Callable[[Any], Any]) -> None:
    assert capture("x", nested(1, MAX_DEPTH, wrap)) is not None
    assert capture("x", nested(1, MAX_DEPTH + 1, wrap)) is None


@settings(max_examples=20)
@given(
    st.integers(MAX_DEPTH - 3, MAX_DEPTH + 3),
    st.lists(st.sampled_from(WRAPS), min_size=1, max_size=3),
    st.sampled_from([1, 1.5, (), [], {}, "tensor"]),
)
def test_what_is_captured_can_be_encoded(depth: int, wraps: list[Callable[[Any], Any]], leaf: Any) -> None:
    state = nested(torch.ones(1) if leaf == "tensor" else leaf, depth, *wraps)
    captured = capture("x", state)
    if captured is not None:
        captured.use([source.clone() for source in captured.sources])
        assert captured.encoded().tree == encode("x", state).tree


@pytest.mark.parametrize("wrap", WRAPS[:3])
def test_what_is_nested_too_deeply_is_refused_when_it_is_saved(wrap: Callable[[Any], Any]) -> None:
    state = nested(torch.ones(1), MAX_DEPTH + 1, wrap)
    assert capture("x", state) is None
    with pytest.raises(UserCodeError, match="nested too deeply"):
        encode("x", state)


class Named(dict[str, int]):
    pass


@pytest.mark.parametrize(
    "state",
    [
        {"x": object()}, {"x": {1}}, [Named()], {"x": Pair(1, 2)}, {"x": (torch.ones(1),)}, {"x": (1, (2, torch.ones(1)), 3)}, {(1, 2): 3},
        {"x": torch.ones(1, dtype=torch.complex128)}, {"x": torch.eye(2).to_sparse()}, {"x": True, "y": [range(2)]},
    ],
)  # fmt: skip
def test_a_rare_value_leaves_the_whole_state_to_the_encoder(state: Any) -> None:
    assert capture("x", state) is None


def test_the_copy_is_of_the_same_kinds_and_changes_no_more() -> None:
    metadata = OrderedDict(a=torch.ones(1))
    metadata._metadata = {"version": 1}  # type: ignore[attr-defined]
    state = {"c": Counter({"a": 2}), "o": metadata, "l": [1, [2, "x"]], "t": (1, (2, None)), 3: b"x", "n": 1 + 2j}
    captured = capture("x", state)
    assert captured is not None
    captured.use([torch.zeros(1)])
    copied = captured.content
    state["l"][1].append(3), state["c"].update("a"), metadata.clear()  # type: ignore[index, union-attr]
    assert copied["l"] == [1, [2, "x"]] and copied["c"] == Counter({"a": 2}) and type(copied["c"]) is Counter
    assert copied["o"] == {"a": torch.zeros(1)} and copied["o"]._metadata == {"version": 1}
    assert (copied["t"], copied[3], copied["n"]) == ((1, (2, None)), b"x", 1 + 2j) and captured.sources == []


def test_the_same_numbers_are_copied_once_and_other_views_of_them_again() -> None:
    base = torch.arange(6.0)
    views = [
        base, base, base[:3], base[1:4], base.view(2, 3), base.view(2, 3), base.view(2, 3).t(), base.view(3, 2),
        base.view(torch.int32), torch.zeros(0), torch.zeros(0), base[:0],
    ]  # fmt: skip
    captured = capture("x", views)
    assert captured is not None
    assert len(captured.sources) == 10
    captured.use([source.clone() for source in captured.sources])
    copies = captured.content
    assert all(torch.equal(copy, view) for copy, view in zip(copies, views, strict=True))
    shares = [[one.data_ptr() == other.data_ptr() for other in copies[:9]].count(True) for one in copies[:9]]
    assert shares == [2, 2, 1, 1, 2, 2, 1, 1, 1]
    # Objects of their own, as they were.
    assert copies[0] is not copies[1] and copies[4] is not copies[5]


def test_without_shared_memory_the_copies_themselves_are_the_content() -> None:
    captured = capture("x", {"a": torch.ones(2), "b": [torch.zeros(2)]})
    assert captured is not None
    copies = [source.clone() for source in captured.sources]
    captured.use(list(copies))
    assert captured.content["a"] is copies[0] and captured.content["b"][0] is copies[1]


def test_forms_are_those_of_as_many_tensors_that_look_the_same() -> None:
    tensors = [torch.ones(2), torch.ones(3, dtype=torch.int64)]
    forms = Forms(tensors, DTYPE, SHAPE)
    assert forms.fit([torch.zeros(2), torch.zeros(3, dtype=torch.int64)])
    for others in (
        tensors[:1], [*tensors, tensors[0]], tensors[::-1], [torch.ones(2), torch.ones(3)],
        [torch.ones(2), torch.ones(4, dtype=torch.int64)], [],
    ):  # fmt: skip
        assert not forms.fit(others)
    assert Forms([], DTYPE).fit([])
