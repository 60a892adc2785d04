"""Tests of :mod:`etude.data.datasets.images`."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from etude.data import fingerprint
from etude.data.datasets.images import ImageFolder, Pictures
from etude.data.datasets.tar import Tar
from etude.data.fingerprint import fingerprint_of
from etude.data.loader import Loader
from etude.errors import ConfigError, DataError
from tests.data.support import pictures, repainted, shard


@pytest.mark.parametrize(
    ("size", "shape"), [(None, (1, 4, 6)), (2, (1, 2, 2)), ((3, 5), (1, 3, 5)), ([3, 5], (1, 3, 5))]
)
def test_pictures_are_read_in_one_size_wherever_they_are(tmp_path, size, shape):
    image = pytest.importorskip("PIL.Image").new("L", (6, 4), 51)
    (tmp_path / "cat").mkdir()
    image.save(tmp_path / "cat" / "2.PNG")
    (tmp_path / "cat" / "note.txt").write_text("no picture")
    png = (tmp_path / "cat" / "2.PNG").read_bytes()
    data = [
        Pictures(str(tmp_path), size, "L"), Pictures(str(tmp_path / "cat" / "2.PNG"), size, "L"),
        ImageFolder(str(tmp_path), size, "L"), Tar(shard(tmp_path / "s.tar", {"0.png": png}), ["png"], size, "L"),
    ]  # fmt: skip
    for one in data:
        sample = one[0][0] if isinstance(one, ImageFolder) else one[0]
        assert len(one) == 1 and sample.shape == shape and torch.allclose(sample, torch.full(shape, 0.2))
    assert Pictures(str(tmp_path), transform=lambda image: image.shape)[0] == (3, 4, 6)
    assert ImageFolder(str(tmp_path), transform=lambda image: image.shape)[0] == ((3, 4, 6), 0)


def test_image_folders_are_numbered_by_name_and_a_torn_picture_is_named(tmp_path):
    for name, grey in (("cat", 255), ("ant", 0)):
        (tmp_path / name).mkdir()
        Image.new("L", (6, 4), grey).save(tmp_path / name / "1.png")
    data = ImageFolder(str(tmp_path), size=(2, 3))
    assert data.classes == ["ant", "cat"]
    images, labels = next(iter(Loader(data, batch_size=2)))
    assert images.shape == (2, 3, 2, 3) and labels.tolist() == [0, 1] and images[1].min() == 1.0
    (tmp_path / "cat" / "2.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"sample 2 \(epoch 1, batch 1\): UnidentifiedImageError"):
        list(Loader(ImageFolder(str(tmp_path)), batch_size=3))
    with pytest.raises(ConfigError, match="no folder"):
        ImageFolder(str(tmp_path / "dog"))


def test_of_many_pictures_sizes_and_beginnings_are_looked_at(tmp_path, monkeypatch):
    folder = pictures(tmp_path)
    monkeypatch.setattr(fingerprint, "_READ", 1000)
    monkeypatch.setattr(fingerprint, "_BEGUN", 2)
    before = fingerprint_of(ImageFolder(str(folder)))
    repainted(folder / "cat/1.bmp")  # its end
    assert fingerprint_of(ImageFolder(str(folder))) == before
    (folder / "cat/1.bmp").write_bytes(b"!" * (folder / "cat/1.bmp").stat().st_size)
    after = fingerprint_of(ImageFolder(str(folder)))
    (folder / "cat/2.bmp").write_bytes(b"!")
    assert len({before, after, fingerprint_of(ImageFolder(str(folder)))}) == 3
