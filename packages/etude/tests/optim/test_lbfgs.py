"""Optimizers that ask for the loss again and again."""

from __future__ import annotations

import pytest
import torch

from etude.core.forward import Forward
from etude.core.hook import HookTable
from etude.core.loop import fit, steps
from etude.core.run import Run
from etude.core.update import Step
from etude.optim.factory import build_optimizer
from etude.plan import Optimizer, Spec


def test_lbfgs_fits_a_line_in_a_few_steps():
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1).double()
    inputs = torch.randn(32, 2).double()
    targets = inputs @ torch.tensor([[2.0], [-3.0]]).double() + 0.5
    spec = Spec(kind="optimizer", name="LBFGS", args={"lr": 1.0, "line_search_fn": "strong_wolfe"})
    optimizer = build_optimizer(Optimizer(spec=spec), model)
    update = Step(Forward(model, {"loss": torch.nn.MSELoss()}), {"": optimizer})
    run = Run(model, update, steps, HookTable(), {"train": [(inputs, targets)]}, {"": optimizer}, total_steps=3)
    fit(run)
    torch.testing.assert_close(model.weight.detach(), torch.tensor([[2.0, -3.0]]).double(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("first", ["weight", "bias"])
def test_the_search_of_one_optimizer_leaves_the_gradients_of_another_alone(first: str) -> None:
    """In whatever order they step, the other one takes the gradient at the parameters before the search."""
    model = torch.nn.Linear(2, 1).double()
    torch.nn.init.constant_(model.weight, 0.5)
    torch.nn.init.zeros_(model.bias)
    inputs, targets = torch.ones(4, 2).double(), torch.zeros(4, 1).double()
    made = {"weight": torch.optim.LBFGS([model.weight]), "bias": torch.optim.SGD([model.bias], lr=0.125)}
    optimizers = dict(sorted(made.items(), key=lambda item: item[0] != first))
    update = Step(Forward(model, {"loss": torch.nn.MSELoss()}), optimizers)
    run = Run(model, update, steps, HookTable(), {"train": [(inputs, targets)]}, optimizers, total_steps=1)
    fit(run)
    # The loss is (w₁ + w₂ + b)² = 1 at first, its slope along b is 2, and 2 · 0.125 is taken off.
    assert model.bias.item() == -0.25
    assert all(param.grad is None for param in model.parameters())
