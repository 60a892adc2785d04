"""Tests of :mod:`etude.data.datasets.tar`."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest

from etude.data.datasets.tar import Tar
from etude.errors import ConfigError
from tests.data.support import shard


def _npy(values: list[float]) -> bytes:
    made = io.BytesIO()
    np.save(made, np.array(values))
    return made.getvalue()


def test_an_array_of_a_shard_is_never_unpickled(tmp_path):
    made = io.BytesIO()
    np.save(made, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    data = Tar(shard(tmp_path / "s.tar", {"0.npy": made.getvalue()}), parts=["npy"])
    with pytest.raises(ValueError, match="allow_pickle=False"):
        data[0]


def test_parts_that_a_shard_does_not_have_are_named_with_what_it_has(tmp_path):
    path = shard(tmp_path / "s.tar", {"a/0.clz": b"1", "b/0.clz": b"2"})
    assert [Tar(path, parts=["clz"])[number] for number in range(2)] == [b"1", b"2"]
    with pytest.raises(ConfigError, match=r"s.tar: samples have no part 'cls'; did you mean 'clz'"):
        Tar(path, parts=["cls"])
    with pytest.raises(ConfigError, match="samples have no part 'txt'"):
        Tar(shard(tmp_path / "one.tar", {"0.cls": b"1"}), parts=["cls", "txt"])
    assert len(Tar(shard(tmp_path / "none.tar", {}))) == 0


def test_shards_of_webdataset_are_read(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for index in range(2):
        with tarfile.open(tmp_path / f"s-{index}.tar", "w") as file:
            for number in range(3):
                data = io.BytesIO()
                image.new("L", (4, 4), 40 * (3 * index + number)).save(data, "png")
                for part, content in (("png", data.getvalue()), ("cls", str(3 * index + number).encode())):
                    info = tarfile.TarInfo(f"{number:04}.{part}")
                    info.size = len(content)
                    file.addfile(info, io.BytesIO(content))
    data = Tar(str(tmp_path / "s-*.tar"), parts=["png", "cls"], mode="L")
    assert len(data) == 6 and [data[i][1] for i in range(6)] == list(range(6))
    assert float(data[4][0].mean()) == pytest.approx(160 / 255)
    with pytest.raises(ConfigError, match="no part 'jpg'"):
        Tar(str(tmp_path / "s-0.tar"))


def test_parts_of_a_shard_are_read_by_their_ending(tmp_path):
    parts = {
        "cls": b"7", "json": b'{"a": 1}', "txt": "é".encode(), "text": b"x", "bin": b"\x00\xff", "seg.CLS": b"3",
        "npy": _npy([1.5, 2.5]),
    }  # fmt: skip
    with tarfile.open(tmp_path / "s.tar", "w") as shard:
        for name, data in parts.items():
            member = tarfile.TarInfo(f"deep/000.{name}")
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
    (values,) = [Tar(str(tmp_path / "s.tar"), parts=list(parts))[0]]
    assert values[:6] == (7, {"a": 1}, "é", "x", b"\x00\xff", 3) and values[6].tolist() == [1.5, 2.5]
    one = Tar(str(tmp_path / "s.tar"), parts=["cls"], transform=lambda number: number + 1)
    assert one[0] == 8 and not one.deterministic and Tar(str(tmp_path / "s.tar"), parts=["cls", "txt"]).deterministic
    (tmp_path / "bad.tar").write_bytes(b"no archive")
    with pytest.raises(ConfigError, match="cannot be read"):
        Tar(str(tmp_path / "bad.tar"))
