"""What messages about a step name: the loss that is wrong, with its line in the config."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from etude.core.describe import describe, not_one_number, shapes
from etude.plan import Place, Spec


@pytest.mark.parametrize(
    ("name", "place"), [("MSELoss", "config.yaml:3"), ("L1Loss#1", "config.yaml:4"), ("Other", "")]
)
def test_a_loss_that_is_not_one_number_is_named_with_its_line(name, place):
    losses = [
        Spec(kind="loss", name="torch.nn.MSELoss", at=Place("config.yaml", 3)),
        Spec(kind="loss", name="L1Loss", at=Place("config.yaml", 4)),
    ]
    run = SimpleNamespace(plan=SimpleNamespace(losses=losses))
    text = not_one_number(run, {"good": torch.tensor(1.0), name: torch.ones(2, 3)})
    assert text.startswith(f"{place}: the loss {name} gives a tensor of shape (2, 3)" if place else f"the loss {name} ")
    assert not_one_number(SimpleNamespace(plan=None), {name: torch.ones(2)}).startswith(f"the loss {name} ")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.ones(2, 3), "a tensor of shape (2, 3)"), ({"x": 1, "y": 2}, "a dict with keys x, y"),
        ({}, "a dict with keys none"), ([1, 2], "a list of 2"), ("text", "a str"), (3, "a int"),
    ],
)  # fmt: skip
def test_values_are_described_by_kind_and_size(value, words):
    assert describe(value) == words


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((torch.ones(2, 3), torch.ones(2)), "batch of (2, 3) and (2,)"), (torch.ones(4), "batch of (4,)"),
        ({"x": torch.ones(1), "name": "a"}, "batch of x (1,)"), ("text", "batch of str"),
    ],
)  # fmt: skip
def test_batches_are_described_by_the_shapes_of_their_tensors(batch, words):
    assert shapes(batch) == words
