"""Tests of :mod:`etude.data.samplers`."""

from __future__ import annotations

import pytest
import torch

from etude.data.datasets.tensors import TensorData
from etude.data.loader import Loader
from etude.data.samplers import LengthGrouped, RepeatedAugmentation, Weighted
from etude.errors import ConfigError


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
