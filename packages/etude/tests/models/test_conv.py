"""Tests of :mod:`etude.models.conv`."""

from __future__ import annotations

import pytest
import torch

from etude.data.datasets.digits import Digits
from etude.data.loader import Loader
from etude.models import MLP, ConvNet
from tests.models.support import losses_after


@pytest.mark.parametrize(
    ("make", "flat"),
    [
        (lambda: MLP([64, 32, 32, 10], dropout=0.1, activation="GELU"), True),
        (lambda: ConvNet(channels=[8, 16]), False),
    ],
)
def test_models_of_images_learn_the_digits(make, flat):
    torch.manual_seed(0)
    first, last = losses_after(make(), Loader(Digits(flat=flat), batch_size=64, shuffle=True))
    assert last < first * 0.8
