"""Clearing of gradients, with fewer calls than torch's."""

from __future__ import annotations

import torch
from torch import nn

from etude.optim.gradients import clear


def params_with(*sizes: int) -> list[nn.Parameter]:
    params = [nn.Parameter(torch.zeros(size)) for size in sizes]
    for param in params:
        param.grad = torch.ones_like(param)
    return params


def test_gradients_of_all_groups_are_cleared_those_that_came_later_included():
    first, second = params_with(2, 3)
    optimizer = torch.optim.SGD([first], lr=0.1)
    optimizer.add_param_group({"params": [second]})
    clear([optimizer])
    assert first.grad is None and second.grad is None


def test_an_optimizer_with_a_zero_grad_of_its_own_keeps_it():
    class Keeps(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            super().zero_grad(set_to_none=False)

    param, other = params_with(2, 3)
    clear([Keeps([param], lr=0.1), torch.optim.SGD([other], lr=0.1)])
    assert param.grad.tolist() == [0.0, 0.0] and other.grad is None
