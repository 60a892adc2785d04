"""``mmcv.load`` and ``mmengine.load`` of a pickle: data come back as they were, code is refused and not run."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.checkpoint.storage import trust
from etude.cli import main
from etude.dialects import imports
from etude.errors import DataError

imports.install()

import mmcv  # noqa: E402
import mmengine  # noqa: E402

VALUES: list[Any] = [
    [1, 2.5, None, True, "ü", b"\x00\xff", 1j], {"a": {1, 2}}, frozenset([1]), range(3), bytearray(b"x"),
    collections.OrderedDict(a=1), collections.defaultdict(list, {1: [2]}), collections.deque([1], 3),
    collections.Counter("aab"), datetime.datetime(2026, 11, 16, 3), datetime.timedelta(3), decimal.Decimal("1.1"),
    fractions.Fraction(1, 3), Path("/a/b"), np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3))),
    np.float64(0.1), np.int64(3), np.array(["a", "bc"]), np.array([{"a": 1}, None], dtype=object),
    np.zeros(2, dtype=[("x", "f4"), ("y", "i8")]), np.bool_(True), np.dtype("f4"), np.float32, torch.bfloat16,
    torch.Size([1, 2]), torch.device("cpu"), torch.arange(6.0).reshape(2, 3).t(), torch.nn.Parameter(torch.ones(2)),
    torch.ones(3, dtype=torch.bfloat16), mmengine.ConfigDict(a=1, b={"c": 2}), mmcv.ConfigDict(a={"b": 1}),
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_data_of_every_kind_come_back_as_they_were(tmp_path: Path, protocol: int) -> None:
    for library in (mmcv, mmengine):
        library.dump(VALUES, tmp_path / "x.pkl", protocol=protocol)
        got = library.load(tmp_path / "x.pkl")
        assert [type(value) for value in got] == [type(value) for value in VALUES]
        assert repr(got) == repr(VALUES)


def test_names_of_the_original_lead_to_ours(tmp_path: Path) -> None:
    theirs = pickle.dumps(mmengine.ConfigDict(a=1), 0).replace(
        b"etude_openmm.shared.config.dict_v2", b"mmengine.config.config"
    )
    (tmp_path / "config.pkl").write_bytes(theirs)
    assert mmengine.load(tmp_path / "config.pkl").a == 1


def test_arguments_of_pickle_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "two.pkl").write_bytes(b"U\x02\xe4b.")  # a text of Python 2
    assert mmcv.load(tmp_path / "two.pkl", encoding="latin1") == "äb"
    with open(tmp_path / "two.pkl", "rb") as file:
        assert mmcv.load(file, file_format="pkl", encoding="bytes") == b"\xe4b"


class Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("library", [mmcv, mmengine], ids=["mmcv", "mmengine"])
def test_a_hostile_pickle_is_refused_and_not_run_unless_trusted(tmp_path: Path, library: Any) -> None:
    marker, file = tmp_path / "marker", tmp_path / "evil.pkl"
    file.write_bytes(pickle.dumps({"data_list": [Hostile(marker)]}))
    with pytest.raises(DataError, match=r"evil\.pkl: refused: global os\.system.*nothing in it was run.*ETUDE_TRUST=1"):
        library.load(str(file))
    with open(file, "rb") as stream, pytest.raises(DataError, match="refused"):
        library.load(stream, file_format="pkl")
    assert not marker.exists()
    with trust.given():
        library.load(str(file))
    assert marker.exists() and not trust.is_given()


@pytest.mark.parametrize(
    "code",
    [
        b"cbuiltins\neval\n(S'1'\ntR.", b"cbuiltins\ngetattr\n(S'a'\nS'b'\ntR.", b"cbuiltins\n__import__\n(S'os'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.", b"ctorch\nload\n(S'x'\ntR.", b"ctorch.hub\nload\n(S'x'\ntR.",
        b"ccopyreg\n_reconstructor\n(cbuiltins\nset\ncbuiltins\nobject\nNtR.", b"cos\npath\n.", b"ccodecs\nencode\n.",
        b"cfunctools\npartial\n.", b"ctorch\nos.system\n.", b"cnumpy\n__builtins__\n.",
    ],
)  # fmt: skip
def test_names_outside_the_list_are_refused(tmp_path: Path, code: bytes) -> None:
    (tmp_path / "x.pkl").write_bytes(code)
    with pytest.raises(DataError, match="refused: global"):
        mmengine.load(tmp_path / "x.pkl")


def test_a_file_cannot_change_the_types_that_it_is_given(tmp_path: Path) -> None:
    poison = b"\x80\x02ccollections\nCounter\nN}X\x0b\x00\x00\x00most_commoncbuiltins\nset\ns\x86b."
    (tmp_path / "x.pkl").write_bytes(poison)
    mmengine.load(tmp_path / "x.pkl")
    assert collections.Counter("aab").most_common(1) == [("a", 2)]


@pytest.mark.parametrize(("flags", "code", "words"), [([], 5, "refused: global"), (["--trust"], 0, "loaded Box")])
def test_the_flag_of_the_command_reaches_the_users_code(
    workdir: Path, capfd: pytest.CaptureFixture[str], flags: list[str], code: int, words: str
) -> None:
    (workdir / f"box{code}.py").write_text(
        "import pickle, mmengine\n"
        "class Box: pass\n"
        "pickle.dump(Box(), open('box.pkl', 'wb'))\n"
        "print('loaded', type(mmengine.load('box.pkl')).__name__)\n"
    )
    (workdir / "c.yaml").write_text(
        f"imports: [box{code}.py]\nmodel: {{type: MLP, sizes: [64, 10]}}\nloss: CrossEntropyLoss\n"
        "data: {train: {dataset: Digits, batch_size: 256}}\noptim: {type: SGD, lr: 0.1}\ntrain: {steps: 1}\n"
    )
    assert main(["train", "c.yaml", *flags]) == code and words in "".join(capfd.readouterr())
    assert not trust.is_given()
