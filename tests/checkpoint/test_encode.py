"""A state becomes a tree of plain values and tensors by name, and comes back as it was."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from etude.checkpoint.encode import decode, encode
from etude.errors import UserCodeError


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
        frozenset({3}), b"\x00\xff", 1 + 2j, Counter("aab"), float("inf"), 10**30,
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    made = encode("hook", value)
    back = decode(made.tree, made.tensors)
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [(OrderedDict(b=1, a=2), {"b": 1, "a": 2}), (torch.Size([1, 2]), (1, 2)), (np.float32(0.5), 0.5)],
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
