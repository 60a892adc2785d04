"""What counts as the same value in two checkpoints, and how a difference is shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from etude.checkpoint.tools.compare import describe, differences, leaves, same

NAN = float("nan")


@pytest.mark.parametrize(
    ("left", "right", "alike"),
    [
        (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN]), True), (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32), False), (torch.zeros(2, 1), torch.zeros(1, 2), False),
        (torch.ones(2), np.ones(2, np.float64), False), (torch.ones(2), [1.0, 1.0], False),
        (np.ones(2), np.ones(2), True), (np.ones((2, 1)), np.ones((1, 2)), False), (np.zeros(1), np.zeros(1, np.int64), False),
        (np.ones(2), np.zeros(2), False), ([1, NAN], [1, NAN], True), ([1, 2], (1, 2), False), ([1, 2], [1, 3], False),
        ([1], [1, 2], False), (1, 1.0, False), (NAN, NAN, True), (NAN, 1.0, False), (1.0, NAN, False), ("a", "a", True),
    ],
)  # fmt: skip
def test_values_are_the_same_if_kind_shape_and_bits_are(left: Any, right: Any, alike: bool) -> None:
    assert same(left, right) is alike


def test_a_tree_has_its_leaves_by_path_and_a_long_row_of_numbers_is_one() -> None:
    row = list(range(100))
    tree = {"a": {"b": [1, {"c": 2}]}, "row": row, "mixed": [*row, "x"], "size": torch.Size([1, 2])}
    found = dict(leaves(tree))
    assert found["a.b.0"] == 1 and found["a.b.1.c"] == 2 and found["row"] == row and found["mixed.100"] == "x"
    assert found["size"] == torch.Size([1, 2]) and dict(leaves([5])) == {"0": 5}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.tensor([[1.0, -2.0]]), "float32 1×2  -2 … 1"), (torch.tensor(3), "int64 scalar"), (torch.ones(0), "float32 0"),
        (list(range(100)), "100 numbers, from 0 to 99"), ("a\x1b", "'a\\x1b'"), ("x" * 100, "'" + "x" * 79),
    ],
)  # fmt: skip
def test_a_value_is_described_by_what_it_holds(value: Any, words: str) -> None:
    assert describe(value) == words


def test_a_difference_shows_both_sides_and_where_rows_part() -> None:
    row = list(range(100))
    first = {"w": torch.tensor([1.0, 2.0]), "row": row, "gone": 1, "same": 2, "shape": torch.ones(2)}
    second = {
        "w": torch.tensor([1.0, 2.5]),
        "row": [*row[:7], -1, *row[8:]],
        "new": 3,
        "same": 2,
        "shape": torch.ones(3),
    }
    found = {one.path: (one.left, one.right) for one in differences(first, second)}
    assert set(found) == {"w", "row", "gone", "new", "shape"}
    assert found["gone"] == ("1", "(none)") and found["new"] == ("(none)", "3")
    assert found["w"][0] == "float32 2  1 … 2" and "0.5" in found["w"][1]
    assert found["row"][0].endswith("; number 7 is 7") and found["row"][1].endswith("; number 7 is -1")
    assert found["shape"] == ("float32 2  1 … 1", "float32 3  1 … 1")
    (other,) = differences({"w": torch.zeros(1)}, {"w": torch.zeros(1, dtype=torch.float64)})
    assert other.right.endswith("(another dtype)")
