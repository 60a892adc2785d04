"""The names inside a foreign pickle stand for inert data, whose sizes are checked."""

from __future__ import annotations

import io
import pickle
from collections import Counter, OrderedDict
from typing import Any

import numpy as np
import pytest
import torch

from etude.checkpoint.formats import safe_pickle
from etude.checkpoint.formats.foreign import Unpickler
from etude.errors import ResumeError


def loaded(data: bytes) -> Any:
    return safe_pickle.plain(Unpickler(io.BytesIO(data)).load())


@pytest.mark.parametrize(
    ("offset", "size", "stride", "want"),
    [
        (0, (4,), (1,), [0.0, 1.0, 2.0, 3.0]), (1, (3,), (1,), [1.0, 2.0, 3.0]), (1, (2,), (2,), [1.0, 3.0]),
        (0, (2, 2), (1, 2), [[0.0, 2.0], [1.0, 3.0]]), (3, (), (), 3.0), (3, (2,), (0,), [3.0, 3.0]), (9, (0, 2), (2, 1), []),
    ],
)  # fmt: skip
def test_a_tensor_is_a_view_of_its_storage(offset: int, size: Any, stride: Any, want: Any) -> None:
    made = safe_pickle.rebuild_tensor(torch.arange(4.0), offset, size, stride)
    assert made.tolist() == want and made.shape == size and made.dtype == torch.float32


@pytest.mark.parametrize(
    ("offset", "size", "stride", "message"),
    [
        (1, (4,), (1,), "a tensor needs 5 elements, its storage has 4"), (0, (3,), (2,), "needs 5 elements"),
        (4, (), (), "needs 5 elements"), (-1, (1,), (1,), "wrong layout"), (3, (2,), (-1,), "wrong layout"),
        (0, (-1,), (1,), "wrong layout"), (0, (2, 2), (1,), "wrong layout"),
    ],
)  # fmt: skip
def test_a_tensor_that_reaches_beyond_its_storage_is_refused(offset: int, size: Any, stride: Any, message: str) -> None:
    with pytest.raises(ResumeError, match=message):
        safe_pickle.rebuild_tensor(torch.arange(4.0), offset, size, stride)


def test_a_storage_that_is_none_is_refused() -> None:
    with pytest.raises(ResumeError, match="wrong layout"):
        safe_pickle.rebuild_tensor([1.0], 0, (1,), (1,))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=">i4").reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.float32(0.5),
        np.array([True, False]), np.arange(0), {"a": [np.float64(1.5)]}, Counter("aab"), {1, 2}, bytearray(b"a\xff"),
        b"\xff\x00", b"", 1 + 2j, torch.Size([1, 2]), OrderedDict(b=1, a=[2, (3,)]), frozenset("a"), "é",
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("protocol", [2, 4])
def test_plain_values_come_back_as_they_were(value: Any, protocol: int) -> None:
    back = loaded(pickle.dumps(value, protocol=protocol))
    assert type(back) is type(value) and np.array_equal(back, value)
    assert getattr(back, "dtype", None) == getattr(value, "dtype", None)


def test_an_array_without_a_state_is_empty() -> None:
    made = loaded(b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR.")
    assert made.shape == (0,) and made.dtype == np.uint8 and made.flags.c_contiguous


def test_a_scalar_has_the_size_of_its_type() -> None:
    code = b"\x80\x02cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(U\x02i4K\x00K\x01tRU%btR."
    assert loaded(code % b"\x04\x01\x00\x00\x00") == 1
    for raw in (b"\x03\x01\x00\x00", b"\x05\x01\x00\x00\x00\x00"):
        with pytest.raises(ResumeError, match="a numpy scalar of a wrong size"):
            loaded(code % raw)


def test_an_array_of_objects_is_a_list() -> None:
    assert loaded(pickle.dumps(np.array([1, "a"], dtype=object))) == [1, "a"]


def test_what_is_there_twice_is_one_value_and_depth_has_an_end() -> None:
    shared = [1]
    one, two = safe_pickle.plain([shared, shared])
    assert one is two
    deep: Any = 1
    for _ in range(safe_pickle.MAX_DEPTH):
        deep = [deep]
    assert safe_pickle.plain(deep) == deep
    with pytest.raises(ResumeError, match="nested too deeply"):
        safe_pickle.plain([deep])


@pytest.mark.parametrize("code", [b"cbuiltins\ngetattr\n(cbuiltins\ndict\nS'get'\ntR.",
                                  b"ccopyreg\n_reconstructor\n(cbuiltins\ndict\ncbuiltins\nobject\nNtR.",
                                  b"ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\ndict\nN)NtR."])  # fmt: skip
def test_functions_that_call_others_are_only_for_what_is_inert(code: bytes) -> None:
    with pytest.raises(ResumeError, match="refused"):
        loaded(code)


def test_kinds_of_numbers_and_storages_are_known_where_torch_has_them() -> None:
    assert safe_pickle.find("torch", "float16") is safe_pickle.find("torch.cuda", "HalfStorage") is torch.float16
    for module, name in (("torch", "load"), ("numpy", "float16"), ("os", "FloatStorage"), ("torch", "NoStorage")):
        with pytest.raises(ResumeError, match=f"refused: global {module}.{name}"):
            safe_pickle.find(module, name)
    with pytest.raises(ResumeError, match="refused: global builtins.eval"):
        safe_pickle.find("__builtin__", "eval")


def test_objects_of_other_systems_are_dicts_of_what_they_hold() -> None:
    made = loaded(b"cargparse\nNamespace\n)\x81}S'a'\nI1\nsb.")
    assert made == {"a": 1}
    assert loaded(b"cargparse\nNamespace\n)\x81(N}S'a'\nI1\nstb.") == {"a": 1}
    assert loaded(b"caddict.addict\nDict\n)\x81}S'a'\nI1\nsb.") == {}
