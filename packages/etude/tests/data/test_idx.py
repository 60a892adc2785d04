"""Tests of :mod:`etude.data.datasets.idx`."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import torch

from etude.data.datasets.idx import Idx, read_idx
from etude.data.loader import Loader
from etude.errors import ConfigError, DataError


def write_idx(path, array: np.ndarray, *, zipped: bool) -> None:
    data = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data) if zipped else data)


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_read_from_any_folder(tmp_path, zipped):
    images = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)
    end = ".gz" if zipped else ""
    write_idx(tmp_path / f"train-images-idx3-ubyte{end}", images, zipped=zipped)
    write_idx(tmp_path / f"train-labels-idx1-ubyte{end}", np.arange(5, dtype=np.uint8), zipped=zipped)
    data = Idx(str(tmp_path))
    batch, labels = next(iter(Loader(data, batch_size=5)))
    assert batch.shape == (5, 1, 4, 3) and labels.tolist() == [0, 1, 2, 3, 4]
    torch.testing.assert_close(batch[:, 0] * 255, torch.from_numpy(images).float())
    assert Idx(str(tmp_path), flat=True)[2][0].shape == (12,)
    with pytest.raises(ConfigError, match="there is no file t10k-images"):
        Idx(str(tmp_path), "test")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\x08",
        b"\1\0\x08\1\0\0\0\1x",
        b"\0\0\x07\1\0\0\0\1x",
        b"nonsense",
        b"\0\0\x08\x01\0\0\0\x09abc",
        b"\0\0\x08\x03\0",
    ],
)
def test_a_damaged_idx_file_is_refused(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(DataError, match="idx file|cut short"):
        read_idx(tmp_path / "x")


def test_an_idx_file_may_hold_one_number_and_its_types_are_kept(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"\0\0\x08\0\x05")
    assert read_idx(file).tolist() == 5
    file.write_bytes(b"\0\0\x08\0")
    with pytest.raises(DataError, match="cut short or has a wrong header: 4 bytes"):
        read_idx(file)
    for kind, letter in ((0x08, "B"), (0x09, "b"), (0x0B, "h"), (0x0C, "i"), (0x0D, "f"), (0x0E, "d")):
        file.write_bytes(struct.pack(f">HBBII6{letter}", 0, kind, 2, 2, 3, *range(6)))
        got = read_idx(file)
        assert got.tolist() == [[0, 1, 2], [3, 4, 5]] and got.dtype == np.dtype(letter)
