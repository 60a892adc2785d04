"""A state becomes a tree of plain values and tensors by name, and comes back as it was."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from etude.checkpoint.encode import MAX_DEPTH, decode, encode
from etude.dist.layout.shards import Piece
from etude.errors import ResumeError, UserCodeError


class Text(str):
    __slots__ = ()


class Level(IntEnum):
    HIGH = 2


class Marked(int):
    mark = "this would be lost"


def test_tensors_of_one_path_get_names_of_their_own_and_the_same_tensor_has_one() -> None:
    one, other = torch.ones(2), torch.zeros(2)
    state = {
        "a": {"b": one},
        "a.b": other,
        "__metadata__": other.clone(),
        "again": one,
        "half": one[:1],
        "none": one[:0],
    }
    made = encode("model", state)
    assert list(made.tensors) == ["a.b", "a.b'", "__metadata__'", "half", "none"] and made.aliases == {"again": "a.b"}
    back = decode(made.tree, made.tensors)
    assert back["again"] is back["a"]["b"] and torch.equal(back["a.b"], other) and back["none"].numel() == 0
    views = torch.ones(2, 2)
    made = encode("model", {"a": views, "turned": views.t(), "bits": views.view(torch.int32), "row": views[0]})
    assert len(made.tensors) == 4 and made.aliases == {}
    assert list(encode("model", one).tensors) == ["value"]


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "x"]}, (1, (2,), []), {1: "int", (1, 2): "tuple", None: 0}, {"$dict": 1}, {1, 2},
        frozenset({3}), b"\x00\xff", 1 + 2j, Counter("aab"), float("inf"), 10**30, {"$x": 1, "y": 2}, {"a": 1, 2: 3},
        deque([1, (2,)], maxlen=4), deque([1]), {}, Counter(), complex("nan-infj").conjugate().imag,
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    made = encode("hook", value)
    back = decode(json.loads(json.dumps(made.tree, allow_nan=False)), made.tensors)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (torch.Size([1, 2]), (1, 2)),
        (np.float32(0.5), 0.5),
        (Text("a"), "a"),
        (Level.HIGH.value, 2),
        (bytearray(b"a"), b"a"),
        (np.complex64(1 + 2j), 1 + 2j),
        (np.str_("a"), "a"),
    ],
)
def test_some_values_come_back_as_plain_ones(value: Any, plain: Any) -> None:
    made = encode("hook", value)
    back = decode(made.tree, made.tensors)
    assert back == plain and type(back) is type(plain)


def test_arrays_come_back_and_what_cannot_is_named_with_its_place() -> None:
    made = encode("hook", {"x": [np.arange(6.0).reshape(2, 3)]})
    assert decode(made.tree, made.tensors)["x"][0].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    with pytest.raises(UserCodeError, match="hook"):
        encode("hook", {"x": [object()]})
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    with pytest.raises(UserCodeError):
        encode("hook", deep)


@pytest.mark.parametrize("value", [np.float32("nan"), np.float64("nan")])
def test_a_scalar_that_is_no_number_comes_back_as_one(value: Any) -> None:
    back = decode(encode("hook", value).tree, {})
    assert type(back) is float and back != back


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Level.HIGH, r"hook\.x\[0\]: it is .*Level; store its value"),
        (np.datetime64("2020-01-01"), r"hook\.x\[0\]: it is numpy\.datetime64; it does not fit a Python number"),
        (np.void(b"ab"), "numpy.void; it does not fit a Python number"),
        (Marked(3), "Marked; a checkpoint holds numbers, texts, bytes"),
        (object(), r"it is object; a checkpoint holds numbers"),
        (np.array(["a"], dtype=object), "an array of object has no place in safetensors"),
        (torch.eye(2).to_sparse(), r"torch\.Tensor; only dense tensors are stored"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "only dense tensors are stored"),
        (torch.ones(1, dtype=torch.complex32), r"torch\.complex32 has no place in safetensors"),
    ],
)
def test_what_cannot_be_saved_is_named_with_the_reason(value: Any, message: str) -> None:
    with pytest.raises(UserCodeError, match=message):
        encode("hook", {"x": [value]})


def test_a_value_may_be_nested_as_deeply_as_is_said_and_no_deeper() -> None:
    deep: Any = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    made = encode("hook", deep)
    assert decode(made.tree, {}) == deep
    with pytest.raises(UserCodeError, match="it is list; nested too deeply"):
        encode("hook", [deep])


def test_gradients_are_not_saved_and_a_conjugate_is_what_it_stands_for() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    turned = torch.tensor([1 + 2j], dtype=torch.complex128).conj()
    made = encode("model", {"w": weight, "c": turned, "v": weight.detach()})
    assert not made.tensors["w"].requires_grad and made.aliases == {"v": "w"}
    back = decode(made.tree, made.tensors)
    assert back["c"].tolist() == [1 - 2j] and back["c"].dtype == torch.complex128


def test_a_tensor_in_shards_is_entered_as_its_piece() -> None:
    piece = Piece(torch.ones(2, 2), (4, 2), (2, 0), saved_here=True)
    made = encode("model", {"w": piece})
    assert made.pieces == {"w": piece} and made.tensors["w"] is piece.local and made.tree == {"w": {"$tensor": "w"}}
    with pytest.raises(UserCodeError, match=r"model\.w: .*torch\.complex128 has no place in safetensors"):
        encode("model", {"w": Piece(torch.ones(1, dtype=torch.complex128), (2,), (0,), saved_here=True)})


def test_a_kind_of_a_newer_version_is_named() -> None:
    with pytest.raises(ResumeError, match=r"unknown kind \$later; needs a newer etude"):
        decode({"$later": 1}, {})
    with pytest.raises(ResumeError) as caught:
        decode({"$" + "x" * 100: 1}, {})
    assert str(caught.value).count("x") == 39


def test_memory_is_one_tensor_only_if_type_form_and_steps_agree() -> None:
    bits = torch.zeros(4, 4)
    views = {"a": bits, "b": bits.view(torch.int32), "c": bits.view(16), "d": bits.t(), "e": bits[:, :], "f": bits[:2]}
    assert encode("model", views).aliases == {"e": "a"}
    made = encode("model", views)
    made.use([torch.full_like(one, 3) for one in made.sources])
    assert decode(made.tree, made.tensors)["e"].unique().tolist() == [3]


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text(max_size=3) | st.integers() | st.sampled_from(["$dict", "$tensor", "$x"])
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
            | st.builds(deque, st.lists(inner, max_size=3), st.none() | st.just(5))
        ),
        max_leaves=8,
    )


@given(trees(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.binary(max_size=3)))
def test_any_tree_of_plain_values_comes_back_through_json(tree: Any) -> None:
    text = json.dumps(encode("hook", tree).tree, allow_nan=False)
    # Texts, because NaN differs from itself.
    assert repr(decode(json.loads(text), {})) == repr(tree)


@pytest.mark.parametrize(
    ("first", "second", "once"),
    [
        (torch.ones(4), lambda one: one, True), (torch.ones(4), lambda one: one.view(4), True),
        (torch.ones(4), lambda one: one[:3], False), (torch.ones(2, 2), lambda one: one.t(), False),
        (torch.ones(2, 2), lambda one: one.view(4), False), (torch.ones(4), lambda one: one.view(torch.int32), False),
        (torch.ones(4), lambda one: one.clone(), False), (torch.ones(0), lambda one: one, False),
        (torch.ones(4), lambda one: one[1:], False),
    ],
)  # fmt: skip
def test_only_the_same_numbers_have_one_place(first: torch.Tensor, second: Any, once: bool) -> None:
    made = encode("model", {"a": first, "b": second(first)})
    assert (len(made.tensors), made.aliases) == ((1, {"b": "a"}) if once else (2, {}))
