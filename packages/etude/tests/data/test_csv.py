"""Tests of :mod:`etude.data.datasets.csv`."""

from __future__ import annotations

import pytest
import torch

from etude.data.datasets.csv import Csv
from etude.errors import ConfigError, DataError


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


def test_a_class_that_the_training_data_does_not_have_is_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,label\n1,rose\n2,iris\n3,dahlia\n")
    with pytest.raises(ConfigError, match=r"a.csv: column 'label': 'dahlia' is not a class of the training data"):
        Csv(str(path), classes=["rose"])
    data = Csv(str(path), classes=["rose", "iris", "dahlia"])
    assert data.tensors[1].tolist() == [0, 1, 2] and data.shared == {"columns": ["a"], "classes": data.classes}
    only = Csv(str(path), classes=["rose"], predicts=True)
    assert only[0].tolist() == [1.0] and len(only.tensors) == 1 and only.fetch(torch.tensor([2])).tolist() == [[3.0]]
