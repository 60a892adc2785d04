"""Tests of :mod:`etude.models.text`."""

from __future__ import annotations

import torch

from etude.data.datasets.text import Characters
from etude.data.loader import Loader
from etude.models import CharTransformer
from tests.models.support import losses_after


def test_the_model_of_text_learns_and_does_not_look_ahead():
    torch.manual_seed(0)
    model = CharTransformer(width=32, depth=1, length=32)
    data = Characters(length=32)
    first, last = losses_after(model, Loader(data, batch_size=16, shuffle=True), steps=20)
    assert last < first * 0.8
    text = data[0][0].unsqueeze(0)
    changed = text.clone()
    changed[0, -1] = 0
    torch.testing.assert_close(model(text)[..., :-1], model(changed)[..., :-1])
