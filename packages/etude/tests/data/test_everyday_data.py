"""Tables, shards, samplers and augmentations by their names in a config, and resuming in the middle of an epoch."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

import etude
from etude.data.collate import CutMix
from etude.data.datasets.images import ImageFolder, Pictures
from etude.data.datasets.tables import Jsonl, Parquet
from etude.data.datasets.tar import Tar
from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.data.samplers import LengthGrouped, RepeatedAugmentation, Weighted
from etude.data.to_device import ahead, move
from etude.errors import ConfigError, DataError
from etude.metrics import AUROC, R2, AveragePrecision, IoU, Perplexity

ROWS = [{"a": x / 10, "b": float(x % 3), "y": x / 5 - x % 3, "name": f"n{x % 2}", "ids": [x, x + 1]} for x in range(23)]


def write_jsonl(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def write_parquet(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.feather
    import pyarrow.parquet

    table = pa.Table.from_pylist(ROWS)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif path.stem == "stream":  # the format of Hugging Face's caches
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    else:
        pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
    return path


@pytest.mark.parametrize(
    ("kind", "name", "write"),
    [
        (Jsonl, "t.jsonl", write_jsonl),
        (Parquet, "t.parquet", write_parquet),
        (Parquet, "t.arrow", write_parquet),
        (Parquet, "stream.arrow", write_parquet),
    ],
)
def test_rows_are_samples_in_any_format(kind, name, write, tmp_path):
    path = str(write(tmp_path / name))
    numbers = kind(path, columns=["a", "b"], target="y")
    features, target = numbers[7]
    assert len(numbers) == 23 and features.tolist() == pytest.approx([0.7, 1.0]) and float(target) == pytest.approx(0.4)
    assert kind(path, columns=["a"], target="name")[1][1] == 1 and kind(path, columns=["a"], target="name").classes == [
        "n0",
        "n1",
    ]
    row = kind(path, columns=["ids", "name"])[3]
    assert row["ids"].tolist() == [3, 4] and row["name"] == "n1"
    assert kind(path, transform=lambda row: row["name"] * 2)[1] == "n1n1"
    with pytest.raises(ConfigError, match="no column is called 'z'"):
        kind(path, columns=["z"])
    with pytest.raises(ConfigError, match="there is no file"):
        kind(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("kind", "name", "write", "workers"),
    [
        (Parquet, "t.parquet", write_parquet, 0),
        (Parquet, "t.parquet", write_parquet, 2),
        (Parquet, "t.arrow", write_parquet, 2),
        (Jsonl, "t.jsonl", write_jsonl, 2),
    ],
)
def test_an_epoch_over_a_table_is_resumed_in_its_middle(kind, name, write, workers, tmp_path):
    dataset = kind(str(write(tmp_path / name)), columns=["a"], target="y")

    def loader():
        return Loader(dataset, batch_size=4, shuffle=True, seed=3, workers=workers)

    whole = [batch[1].tolist() for batch in loader()]
    first, second = loader(), loader()
    batches = iter(first)
    seen = [next(batches)[1].tolist() for _ in range(2)]
    second.load_state_dict(first.state_dict())
    seen += [batch[1].tolist() for batch in second]
    first.close(), second.close()
    assert seen == whole and sorted(value for batch in whole for value in batch) == sorted(
        torch.tensor([r["y"] for r in ROWS]).tolist()
    )


def test_the_values_of_a_row_become_tensors_where_they_are_numbers(tmp_path):
    values = {"n": 3, "x": 0.5, "flags": [True, False], "ids": [1], "rows": [[1.0], [2.0]], "s": "a"}
    others = {"empty": [], "words": ["a", 1], "none": None, "inner": {"a": 1}}
    (tmp_path / "t.jsonl").write_text(json.dumps(values | others) + "\n\n" + json.dumps(values | others) + "\n")
    data = Jsonl(str(tmp_path / "t.jsonl"))
    row = data[1]
    assert len(data) == 2 and {name: row[name] for name in others} == others and row["s"] == "a"
    assert row["n"].dtype == row["ids"].dtype == torch.int64 and row["x"].dtype == row["rows"].dtype == torch.float32
    assert row["flags"].dtype == torch.bool and row["rows"].tolist() == [[1.0], [2.0]] and row["n"] == 3


def test_a_table_without_rows_or_with_other_lines_is_refused(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("\n  \n")
    with pytest.raises(ConfigError, match=r"Jsonl: .*t.jsonl has no line"):
        Jsonl(str(path))
    for line, says in (("[1, 2]", "row 1: a JSON object is due, not list"), ("{", "row 1: Expecting property name")):
        path.write_text('{"a": 1}\n' + line + "\n")
        with pytest.raises(DataError, match=says):
            Jsonl(str(path))[1]


def test_the_target_may_be_missing_only_where_it_is_to_be_predicted(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1, "b": "x"}\n{"a": "?", "b": "y"}\n')
    with pytest.raises(ConfigError, match="no column is called 'y'"):
        Jsonl(str(path), columns=["a"], target="y")
    data = Jsonl(str(path), columns=["a"], target="y", predicts=True)
    assert data[0] == {"a": torch.tensor(1)} and data.classes is None and data.shared == {"columns": ["a"]}
    named = Jsonl(str(path), target="b")
    assert named.columns == ["a"] and named.shared == {"columns": ["a"], "classes": ["x", "y"]}
    assert named[0][0].tolist() == [1.0] and named[0][1] == 0
    with pytest.raises(DataError, match=r"row 1: '\?' in column 'a' is not a number"):
        named[1]
    with pytest.raises(ConfigError, match="row 0: 'x' is not a class of the training data"):
        Jsonl(str(path), target="b", classes=["y"])[0]
    other = tmp_path / "other.jsonl"
    other.write_text(path.read_text())
    with pytest.raises(ConfigError, match=f"{path}: no column is called 'z'"):
        Jsonl([str(path), str(other)], columns=["z"])
    assert len(Jsonl([str(path), str(path)])) == 4 and Jsonl([str(path), str(path)])[3]["b"] == "y"


def shard(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w") as made:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return str(path)


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


def test_shards_of_webdataset_are_read(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for shard in range(2):
        with tarfile.open(tmp_path / f"s-{shard}.tar", "w") as file:
            for number in range(3):
                data = io.BytesIO()
                image.new("L", (4, 4), 40 * (3 * shard + number)).save(data, "png")
                for part, content in (("png", data.getvalue()), ("cls", str(3 * shard + number).encode())):
                    info = tarfile.TarInfo(f"{number:04}.{part}")
                    info.size = len(content)
                    file.addfile(info, io.BytesIO(content))
    data = Tar(str(tmp_path / "s-*.tar"), parts=["png", "cls"], mode="L")
    assert len(data) == 6 and [data[i][1] for i in range(6)] == list(range(6))
    assert float(data[4][0].mean()) == pytest.approx(160 / 255)
    with pytest.raises(ConfigError, match="no part 'jpg'"):
        Tar(str(tmp_path / "s-0.tar"))


def test_weights_say_how_often_a_sample_comes():
    data = TensorData(torch.arange(4), torch.tensor([0, 0, 1, 1]))
    drawn = torch.tensor([batch[1].tolist() for batch in Loader(data, sampler=Weighted(data, [1.0, 3.0], size=4000))])
    assert 0.7 < float(drawn.double().mean()) < 0.8
    never = [int(batch[0]) for batch in Loader(data, sampler=Weighted(data, [1, 1, 0, 1], size=200))]
    assert set(never) == {0, 1, 3}
    with pytest.raises(ConfigError, match="neither one per sample"):
        Weighted(data, [1.0])


def test_samples_of_one_length_come_together():
    data = [torch.zeros(length) for length in torch.randint(1, 50, (64,)).tolist()]
    order = list(LengthGrouped(data, group=32))
    assert sorted(order) == list(range(64))
    lengths = [len(data[index]) for index in order]
    assert lengths[:32] == sorted(lengths[:32], reverse=True)


def test_repeats_of_a_sample_are_augmented_anew():
    class Noisy:
        def __len__(self):
            return 12

        def __getitem__(self, index):
            return index, torch.rand(())

    def drawn(workers):
        loader = Loader(Noisy(), batch_size=6, sampler=RepeatedAugmentation(Noisy(), repeats=3), workers=workers)
        batches = list(loader)
        loader.close()
        return [(int(i), float(x)) for batch in batches for i, x in zip(*batch, strict=True)]

    found = drawn(0)
    assert [i for i, _ in found[:3]] == [found[0][0]] * 3 and len({x for _, x in found}) == 12
    assert found == drawn(2)


def test_cutmix_gives_each_class_its_share():
    torch.manual_seed(0)
    samples = [(torch.full((1, 8, 8), float(label)), label) for label in range(4)]
    for _ in range(10):
        images, targets = CutMix(classes=4)(samples)
        assert torch.allclose(targets.sum(1), torch.ones(4))
        assert torch.allclose(images.mean((1, 2, 3)), (targets * torch.arange(4)).sum(1), atol=1e-5)


def test_metrics_agree_with_those_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    scores = (torch.randn(200, generator=generator) * 4).round() / 4  # with ties
    targets = (torch.rand(200, generator=generator) < scores.sigmoid()).long()
    for metric, theirs in ((AUROC(), sklearn.roc_auc_score), (AveragePrecision(), sklearn.average_precision_score)):
        for part in range(0, 200, 50):
            metric.update(scores[part : part + 50, None], targets[part : part + 50])
        assert float(metric.compute()) == pytest.approx(theirs(targets, scores))
    several = torch.randn(200, 3, generator=generator)
    classes = torch.randint(3, (200,), generator=generator)
    metric = AUROC()
    metric.update(several, classes)
    assert float(metric.compute()) == pytest.approx(
        sklearn.roc_auc_score(classes, several.softmax(1), multi_class="ovr")
    )
    r2, values = R2(), torch.randn(200, generator=generator)
    r2.update(scores[:100, None], values[:100]), r2.update(scores[100:, None], values[100:])
    assert float(r2.compute()) == pytest.approx(sklearn.r2_score(values, scores))
    iou, maps = IoU(), torch.randint(3, (2, 5, 5), generator=generator)
    logits = torch.randn(2, 3, 5, 5, generator=generator)
    iou.update(logits, maps)
    wanted = sklearn.jaccard_score(maps.flatten(), logits.argmax(1).flatten(), average="macro")
    assert float(iou.compute()) == pytest.approx(wanted)
    perplexity, words = Perplexity(), torch.randint(7, (4, 6), generator=generator)
    words[0, 0] = -100
    answers = torch.randn(4, 6, 7, generator=generator)
    perplexity.update(answers, words)
    expected = torch.nn.functional.cross_entropy(answers.flatten(0, 1), words.flatten()).exp()
    assert float(perplexity.compute()) == pytest.approx(float(expected), rel=1e-5)


CONFIG = """\
imports: [parts.py]
model: {type: MLP, sizes: [64, 16, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 256}
  val: {dataset: {type: Stream, split: val}, batch_size: 90}
optim: {type: AdamW, lr: 1e-3}
train: {epochs: 2}
metrics: [Accuracy]
"""
STREAM = """
import torch, etude
from etude.data import Digits

@etude.DATASETS.register
class Stream(torch.utils.data.IterableDataset):
    def __init__(self, split):
        self.digits = Digits(split)
    def __iter__(self):
        return (self.digits[index] for index in range(len(self.digits)))
"""


def test_a_stream_is_validated_on(tmp_path):
    (tmp_path / "parts.py").write_text(STREAM)
    (tmp_path / "stream.yaml").write_text(CONFIG)
    (tmp_path / "plain.yaml").write_text(CONFIG.replace("Stream", "Digits"))
    found = [
        etude.train(tmp_path / f"{name}.yaml", options=etude.Options(folder=tmp_path / name, quiet=True)).metrics
        for name in ("stream", "plain")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_sample_that_does_not_fit_its_batch_is_named(workers, stream):
    rows = [torch.zeros(3 if number == 5 else 2) for number in range(8)]
    loader = Loader(iter_of(rows) if stream else rows, batch_size=4, workers=workers)
    with pytest.raises(DataError, match=r"epoch 1, batch 2 .* sample 5 is 3, others are 2; collate: Pad"):
        list(loader)
    loader.close()


def iter_of(rows):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(rows)

    return Stream()


def test_a_stream_without_samples_ends_the_run(caplog):
    with pytest.raises(DataError, match="Stream gave no batch in epoch 1"):
        list(Loader(iter_of([]), batch_size=4))
    Loader(TensorData(torch.arange(3)), batch_size=4, shuffle=True)
    assert "TensorData has 3 samples, fewer than one batch of 4" in caplog.text


def test_augmented_images_stay_images(tmp_path):
    from etude.data.transforms import RandAugment

    torch.manual_seed(0)
    image = torch.rand(3, 12, 12)
    changed = [RandAugment(count=2)(image) for _ in range(60)]
    assert all(one.shape == image.shape and float(one.min()) >= 0 and float(one.max()) <= 1 + 1e-6 for one in changed)
    assert sum(not torch.equal(one, image) for one in changed) > 50
    with pytest.raises(ConfigError, match="from 0 to 10"):
        RandAugment(strength=11)


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


def _npy(values: list[float]) -> bytes:
    made = io.BytesIO()
    np.save(made, np.array(values))
    return made.getvalue()


def test_a_batch_is_moved_with_everything_in_it():
    class Pair(NamedTuple):
        x: torch.Tensor
        name: str

    class Boxes:
        def to(self, device):
            return f"on {device}"

    x = torch.ones(2)
    moved = move({"a": [x, (x, 3)], "pair": Pair(x, "n"), "boxes": Boxes()}, "meta")
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == moved["pair"].x.device.type == "meta"
    assert moved["a"][1][1] == 3 and moved["pair"].name == "n" and moved["boxes"] == "on meta"
    assert isinstance(moved["a"][1], tuple) and isinstance(moved["pair"], Pair)
    assert move(x, "cpu") is x and move(x, torch.device("cpu", 0)) is x
    seen: list[int] = []
    prepared = ahead(iter([1, 2, 3]), lambda one: (seen.append(one), one * 10)[1])
    assert next(prepared) == 10 and seen == [1, 2] and list(prepared) == [20, 30]
