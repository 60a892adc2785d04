"""Tests of :mod:`etude.data.datasets.tensors`."""

from __future__ import annotations

import pytest
import torch

from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.errors import ConfigError, DataError
from tests.data.support import iter_of


def test_a_stream_without_samples_ends_the_run(caplog):
    with pytest.raises(DataError, match="Stream gave no batch in epoch 1"):
        list(Loader(iter_of([]), batch_size=4))
    Loader(TensorData(torch.arange(3)), batch_size=4, shuffle=True)
    assert "TensorData has 3 samples, fewer than one batch of 4" in caplog.text


def test_changing_a_batch_leaves_the_data_alone():
    data = TensorData(torch.zeros(4))
    for batch in Loader(data, batch_size=4):
        batch += 1
    assert data.tensors[0].sum() == 0
    with pytest.raises(ConfigError, match="different lengths"):
        TensorData(torch.zeros(2), torch.zeros(3))
