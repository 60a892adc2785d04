"""Pickles of data are read without running what they name."""

from __future__ import annotations

import datetime
import io
import os
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch

from etude.checkpoint.formats.data_pickle import RefusedPickle, load


def read(data: bytes, classes: Any = None) -> Any:
    return load(io.BytesIO(data), classes or {})


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_plain_values_arrays_and_tensors_are_read(protocol: int) -> None:
    content = {
        "plain": [1, 2.5, "é", b"\xff", None, True, (1,), {2}, frozenset({3}), 1j, bytearray(b"x"), range(3), slice(1, 2)],
        "named": [OrderedDict(a=1), Counter("aab"), deque([1]), Decimal("1.5"), Fraction(1, 3), PurePosixPath("/a")],
        "when": datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC),
        "numbers": [np.float64(0.5), np.int32(3), np.dtype("float32")],
        "kinds": [torch.float16, np.float64, torch.Size([1, 2]), torch.device("cpu")],
        "default": defaultdict(list, a=[1]),
    }  # fmt: skip
    assert read(pickle.dumps(content, protocol=protocol)) == content
    arrays = read(pickle.dumps([np.arange(6.0).reshape(2, 3), torch.arange(3)], protocol=protocol))
    assert arrays[0].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] and arrays[1].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"cposix\nsystem\n(S'true'\ntR.", "os.system"), (b"c__builtin__\neval\n(S'1'\ntR.", "builtins.eval"),
        (b"ctorch\nload\n(S'x'\ntR.", "torch.load"), (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
        (b"cnumpy\nfloat64.x\n.", "numpy.float64.x"),
    ],
)  # fmt: skip
def test_other_names_are_refused(text: bytes, name: str) -> None:
    with pytest.raises(RefusedPickle, match=f"refused: global {name}"):
        read(text)


def test_names_of_python_2_are_those_of_python_3() -> None:
    assert read(b"c__builtin__\nxrange\n(I3\ntR.") == range(3)
    assert read(b"c__builtin__\nunicode\n(I3\ntR.") == "3" and read(b"c__builtin__\nset\n(tR.") == set()


def test_a_class_that_the_caller_names_is_found_and_no_other() -> None:
    data = pickle.dumps(os.stat_result(range(10)))
    with pytest.raises(RefusedPickle):
        read(data)
    assert read(data, {("os", "stat_result"): "os"}) == tuple(range(10))


def test_a_type_cannot_be_changed_through_a_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Counter.most_common
    monkeypatch.setattr(Counter, "most_common", before)
    read(b"ccollections\nCounter\n(N}(Vmost_common\nI1\nutb.")
    assert Counter.most_common is before


def test_a_scalar_that_holds_objects_is_refused() -> None:
    with pytest.raises(RefusedPickle, match="a numpy scalar that holds objects"):
        read(b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O8'\nI0\nI1\ntRS'x'\ntR.")
