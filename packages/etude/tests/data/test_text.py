"""Tests of :mod:`etude.data.datasets.text`."""

from __future__ import annotations

import pytest
import torch

from etude.data.datasets.text import Characters
from etude.errors import ConfigError


def test_a_text_is_cut_into_pieces_with_the_next_byte_as_target(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(bytes(range(100)))
    train, val, whole = (Characters(str(file), split, length=4) for split in ("train", "val", "all"))
    assert [len(train.text), len(val.text), len(whole.text)] == [90, 10, 100]
    assert (whole.stride, len(whole), len(val)) == (2, 48, 3)
    inputs, targets = val[1]
    assert (inputs.tolist(), targets.tolist()) == ([92, 93, 94, 95], [93, 94, 95, 96])
    assert [piece.tolist() for piece in val.fetch(torch.tensor([2]))] == [[[94, 95, 96, 97]], [[95, 96, 97, 98]]]
    assert len(Characters(str(file), "val", length=9)) == 1 and len(Characters(str(file), "val", length=10)) == 0
    assert Characters(str(file), length=1).stride == 1 and Characters(str(file), length=4, stride=3).stride == 3
    assert len(Characters(str(file), "val", length=4, stride=6)) == 1 and len(Characters(str(file), "val", 4, 5)) == 2
    assert train.fingerprint() != val.fingerprint()
    file.write_bytes(b"")
    assert len(Characters(str(file))) == len(Characters(str(file)).text) == 0
    with pytest.raises(ConfigError, match="no split is called 'vall'"):
        Characters(str(file), "vall")
    with pytest.raises(ConfigError, match="^Characters: there is no file nowhere.txt$"):
        Characters("nowhere.txt")
