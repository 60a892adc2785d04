"""Tests of :mod:`etude.data.datasets.digits`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import etude
from etude.data.datasets.digits import Digits
from etude.errors import ConfigError

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
