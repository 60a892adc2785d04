"""What comes with the package, and files of the user."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from etude.data import fingerprint
from etude.data.datasets.csv import Csv
from etude.data.datasets.digits import Digits
from etude.data.datasets.idx import Idx, read_idx
from etude.data.datasets.images import ImageFolder
from etude.data.datasets.tensors import TensorData
from etude.data.datasets.text import Characters
from etude.data.fingerprint import fingerprint_of
from etude.data.loader import Loader
from etude.data.transforms import Chain, Normalize, RandomFlip, RandomShift, Transformed
from etude.errors import ConfigError, DataError


def test_digits_are_those_of_scikit_learn_in_a_fixed_split():
    from sklearn.datasets import load_digits

    images, labels = Digits("all").tensors
    np.testing.assert_array_equal(images.numpy() * 16, load_digits().data)
    np.testing.assert_array_equal(labels.numpy(), load_digits().target)
    train, val = Digits("train"), Digits("val", flat=False)
    assert (len(train), len(val)) == (1437, 360)
    assert val[0][0].shape == (1, 8, 8) and val[0][0].dtype == torch.float32 and val[0][1].dtype == torch.int64
    rows = torch.cat([train.tensors[0], val.tensors[0].flatten(1)])
    torch.testing.assert_close(rows.sum(0), images.sum(0))
    assert val.tensors[1][:8].tolist() == [7, 9, 4, 7, 0, 2, 6, 1]  # of all checkpoints that there are
    with pytest.raises(ConfigError, match="did you mean 'train'"):
        Digits("trian")


def test_changing_a_batch_leaves_the_data_alone():
    data = TensorData(torch.zeros(4))
    for batch in Loader(data, batch_size=4):
        batch += 1
    assert data.tensors[0].sum() == 0
    with pytest.raises(ConfigError, match="different lengths"):
        TensorData(torch.zeros(2), torch.zeros(3))


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


def pictures(folder: Path) -> Path:
    for name in ("cat/1.bmp", "cat/2.bmp", "dog/1.bmp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode() * 2000)
    return folder


class Listed:
    """A dataset of another package that lists its files, as torchvision's do."""

    def __init__(self, folder: str) -> None:
        self.samples = [(str(path), 0) for path in sorted(Path(folder).rglob("*.bmp"))]


def repainted(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"!")


@pytest.mark.parametrize("kind", [ImageFolder, Listed])
@pytest.mark.parametrize(
    "change",
    [repainted, lambda path: path.write_bytes(b"shorter"), lambda path: path.rename(path.with_name("9.bmp"))],
)
def test_a_picture_that_has_changed_makes_other_data_and_a_copy_does_not(tmp_path, kind, change):
    first, copy = pictures(tmp_path / "a"), tmp_path / "b"
    shutil.copytree(first, copy)
    assert fingerprint_of(kind(str(first))) == fingerprint_of(kind(str(copy))) != ""
    change(copy / "cat/2.bmp")
    assert fingerprint_of(kind(str(first))) != fingerprint_of(kind(str(copy)))


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


def test_csv_files_give_numbers_and_classes(tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text("a,b,kind,size\n1,2,rose,0.5\n3,4,iris,1\n\n5,6,rose,2\n")
    by_name = Csv(str(path), target="kind", columns=["b", "a"])
    assert by_name.classes == ["iris", "rose"] and by_name.tensors[1].tolist() == [1, 0, 1]
    assert by_name[1][0].tolist() == [4.0, 3.0]
    assert Csv(str(path), target="size", columns=["a"]).tensors[1].dtype == torch.float32
    assert Csv(str(path), target="a", columns=["b"]).tensors[1].dtype == torch.int64
    with pytest.raises(ConfigError, match=r"flowers.csv:1: no column is called 'knd'; did you mean 'kind'"):
        Csv(str(path), target="knd")
    with pytest.raises(DataError, match=r"flowers.csv:2: 'rose' in column 'kind' is not a number"):
        Csv(str(path), target="size")
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match=r"flowers.csv:3: 1 values for 2 columns"):
        Csv(str(path), target="a")
    with pytest.raises(ConfigError, match="^Csv: there is no file .*none.csv$"):
        Csv(str(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match="^Csv: .* cannot be read: Is a directory$"):
        Csv(str(tmp_path))


def test_transforms_draw_by_epoch_and_sample():
    chain = Chain([RandomFlip(), RandomShift(1), Normalize([0.5], [0.25])])
    loader = Loader(Transformed(Digits("val", flat=False), chain), batch_size=360)
    (first,), (second,) = list(loader), list(loader)
    assert first[0].shape == (360, 1, 8, 8) and first[0].min() == -2.0
    assert torch.equal(first[1], second[1]) and not torch.equal(first[0], second[0])
    loader.set_epoch(0)
    (again,) = list(loader)
    assert torch.equal(again[0], first[0])


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


def test_a_data_set_without_a_fingerprint_is_known_by_what_it_holds(tmp_path):
    class Holds:
        def __init__(self, **fields):
            vars(self).update(fields)

    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    files = [(str(tmp_path / name), 0) for name in ("a", "b")]
    listed = fingerprint_of(Holds(samples=files))
    assert listed and listed == fingerprint_of(Holds(samples=files, root=str(tmp_path)))
    (tmp_path / "b").write_text("c")
    assert fingerprint_of(Holds(samples=files)) != listed
    (tmp_path / "b").unlink()
    assert fingerprint_of(Holds(samples=files)) not in ("", listed)
    several = ([1, 2], [*files, 3], [*files, ()], [(3, 0)], [*files, (3, 0)], [("nowhere", 0)], tuple(files))
    marks = {fingerprint_of(Holds(samples=samples)) for samples in several}
    assert len(marks) == len(several) and "" not in marks and listed not in marks
    assert fingerprint_of(Holds(samples=[])) == fingerprint_of(Holds(samples=[object()])) == ""
    assert fingerprint_of(Holds(tensors=[])) == fingerprint_of(Holds(tensors=[torch.ones(1), 2])) == ""
    inner = Holds(tensors=[torch.ones(2)])
    assert fingerprint_of(Holds(dataset=inner)) == fingerprint_of(inner) != ""
    assert fingerprint_of(Holds(fingerprint=3)) == "3" and fingerprint_of(Holds(fingerprint=lambda: "x")) == "x"
    loop = Holds()
    loop.dataset = loop
    assert fingerprint_of(loop) == ""


def test_of_large_data_evenly_spaced_pieces_count(monkeypatch):
    monkeypatch.setattr(fingerprint, "_WHOLE", 64)
    monkeypatch.setattr(fingerprint, "_PIECES", 4)
    whole, large = torch.zeros(64, dtype=torch.uint8), torch.zeros(400, dtype=torch.uint8)

    def changed(content: torch.Tensor, at: int) -> bool:
        other = content.clone()
        other[at] = 1
        return fingerprint.checksum_of_tensors([other]) != fingerprint.checksum_of_tensors([content])

    assert all(changed(whole, at) for at in (0, 31, 63))
    assert [changed(large, at) for at in (0, 15, 16, 99, 100, 115, 116, 300, 316)] == [
        True, True, False, False, True, True, False, True, False,
    ]  # fmt: skip


def test_checksums_stay_the_same_for_old_checkpoints(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert fingerprint.checksum_of_tensors([torch.arange(3), torch.ones(2, 1)]) == "549ebc50"
    assert fingerprint.checksum_of_texts(["a", "b"]) == "f515465f"
    assert fingerprint.checksum_of_files([tmp_path / "a"], root=tmp_path) == "927fb475"
    assert fingerprint.checksum_of_files([tmp_path / "none"], root=tmp_path) == "07cd2235"


@pytest.mark.parametrize(("sizes", "whole"), [((40, 60), True), ((40, 61), False), ((30, 30, 40), False)])
def test_files_are_read_as_a_whole_up_to_so_many_and_so_many_bytes(tmp_path, monkeypatch, sizes, whole):
    monkeypatch.setattr(fingerprint, "_READ", 100)
    monkeypatch.setattr(fingerprint, "_SIZED", 2)
    monkeypatch.setattr(fingerprint, "_BEGINNING", 10)
    paths = [tmp_path / str(number) for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(b"x" * size)
    before = fingerprint.checksum_of_files(paths, root=tmp_path)
    repainted(paths[0])  # its last byte
    assert (fingerprint.checksum_of_files(paths, root=tmp_path) != before) == whole


def test_a_class_that_the_training_data_does_not_have_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,label\n1,rose\n2,iris\n3,dahlia\n")
    with pytest.raises(ConfigError, match=r"a.csv: column 'label': 'dahlia' is not a class of the training data"):
        Csv(str(path), classes=["rose"])
    data = Csv(str(path), classes=["rose", "iris", "dahlia"])
    assert data.tensors[1].tolist() == [0, 1, 2] and data.shared == {"columns": ["a"], "classes": data.classes}
    only = Csv(str(path), classes=["rose"], predicts=True)
    assert only[0].tolist() == [1.0] and len(only.tensors) == 1 and only.fetch(torch.tensor([2])).tolist() == [[3.0]]
