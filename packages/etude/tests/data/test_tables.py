"""Tests of :mod:`etude.data.datasets.tables`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from etude.data.datasets.tables import Jsonl, Parquet
from etude.data.loader import Loader
from etude.errors import ConfigError, DataError

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
