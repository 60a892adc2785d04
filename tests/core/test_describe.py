"""What messages about a step name: the loss that is wrong, with its line in the config."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from etude.core.describe import not_one_number
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
