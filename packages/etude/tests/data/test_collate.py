"""Tests of :mod:`etude.data.collate`."""

from __future__ import annotations

import pytest
import torch

from etude.data.collate import CutMix
from etude.data.loader import Loader
from etude.errors import DataError
from tests.data.support import iter_of


def test_cutmix_gives_each_class_its_share():
    torch.manual_seed(0)
    samples = [(torch.full((1, 8, 8), float(label)), label) for label in range(4)]
    for _ in range(10):
        images, targets = CutMix(classes=4)(samples)
        assert torch.allclose(targets.sum(1), torch.ones(4))
        assert torch.allclose(images.mean((1, 2, 3)), (targets * torch.arange(4)).sum(1), atol=1e-5)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_a_sample_that_does_not_fit_its_batch_is_named(workers, stream):
    rows = [torch.zeros(3 if number == 5 else 2) for number in range(8)]
    loader = Loader(iter_of(rows) if stream else rows, batch_size=4, workers=workers)
    with pytest.raises(DataError, match=r"epoch 1, batch 2 .* sample 5 is 3, others are 2; collate: Pad"):
        list(loader)
    loader.close()
