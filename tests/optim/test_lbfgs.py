"""Optimizers that ask for the loss again and again."""

from __future__ import annotations

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
