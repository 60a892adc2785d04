"""Cells of tables become numbers by what the training data taught."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from etude.data import Csv
from etude.data.datasets.several import Fold
from etude.errors import ConfigError, DataError
from tests.cli.commands import Commands

TRAIN = "size,city,age,price\n10,Rome,1,5\n20,Bonn,,6\n30,Rome,5,7\n40,Bonn,3,8\n"
VAL = "price,age,size,city\n5,,25,Bonn\n"
CONFIG = """
model: {type: MLP, sizes: [4, 8, 1]}
loss: MSELoss
data:
  train: {dataset: {type: Csv, file: train.csv, target: price, categories: [city], scale: standard, missing: median}, batch_size: 2}
  val: {dataset: {type: Csv, file: val.csv, target: price}, batch_size: 2}
optim: {type: SGD, lr: 0.01}
train: {epochs: 1}
"""


@pytest.fixture
def files(workdir):
    Path("train.csv").write_text(TRAIN)
    Path("val.csv").write_text(VAL)


def read(file="train.csv", **words):
    return Csv(file, target="price", **words)


def test_columns_are_scaled_filled_and_split_into_categories(files):
    train = read(categories=["city"], scale="minmax", missing="mean")
    assert train.tensors[0].tolist() == [
        [0.0, 0.0, 1.0, 0.0], [pytest.approx(1 / 3), 1.0, 0.0, 0.5], [pytest.approx(2 / 3), 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.5]
    ]  # fmt: skip
    val = Csv("val.csv", target="price", **train.shared)
    assert torch.allclose(val.tensors[0], torch.tensor([[0.5, 1.0, 0.0, 0.5]]))
    standard = read(columns=["size"], scale="standard").tensors[0]
    assert float(standard.mean()) == pytest.approx(0, abs=1e-6) and float(standard.std(correction=0)) == pytest.approx(
        1
    )


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"scale": "standart"}, ConfigError, "scale is 'standart'; did you mean 'standard'"),
        ({"categories": ["town"]}, ConfigError, "no column is called 'town'"),
        ({"categories": ["city"]}, DataError, "train.csv:3: no value in column 'age'; write missing: mean"),
        (
            {"missing": "zero"},
            DataError,
            r"train.csv:2: 'Rome' in column 'city' is not a number; write categories: \[city\]",
        ),
    ],
)
def test_what_cannot_be_a_number_is_told_with_its_line(files, words, error, message):
    with pytest.raises(error, match=message):
        read(**words)


def test_a_category_that_training_did_not_have_is_refused_or_none_of_them(files):
    Path("val.csv").write_text(VAL.replace("Bonn", "Oslo").replace("5,,", "5,1,"))
    words = read(columns=["size", "city"], categories=["city"]).shared
    with pytest.raises(DataError, match="val.csv:2: 'Oslo' in column 'city' is no category of the training data"):
        Csv("val.csv", target="price", **words)
    assert Csv("val.csv", target="price", **words, missing="zero").tensors[0].tolist() == [[25.0, 0.0, 0.0]]


def test_a_fold_learns_from_its_training_part_alone(files):
    for held_out in (False, True):
        fold = Fold(read(columns=["size"], scale="minmax"), 2, 1, held_out=held_out)
        training = Fold(read(columns=["size"], scale="minmax"), 2, 1)
        seen = [training[index][0].item() for index in range(2)]
        assert min(seen) == 0.0 and max(seen) == 1.0 and len(fold) == 2


def test_predictions_use_what_the_run_has_learnt_when_the_training_data_is_gone(files, capfd):
    command = Commands(capfd)
    assert command("check", "c.yaml", c_yaml=CONFIG).code == 0
    said = command("train", "c.yaml", "--folder", "run", "-q")
    assert said.code == 0, said.err
    assert json.loads(Path("run/learnt.json").read_text())["fitted"]["city"] == {"categories": ["Bonn", "Rome"]}
    assert command("predict", "run", "-o", "before.csv").code == 0
    Path("train.csv").unlink()
    assert command("predict", "run", "val.csv", "-o", "after.csv").code == 0
    assert Path("before.csv").read_text() == Path("after.csv").read_text()
