"""Tests of :mod:`etude.optim.lamb`."""

from __future__ import annotations

import pytest
import torch

from etude.optim.lamb import LAMB
from tests.optim.support import lamb_by_hand, trained


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.1, "weight_decay": 0.1, "betas": (0.8, 0.9)},
        {"lr": 0.1, "weight_decay": 0.0},
        {"lr": 0.1, "weight_decay": 0.0, "always_adapt": True, "max_grad_norm": None},
        {"lr": 0.1, "grad_averaging": False, "bias_correction": False, "trust_clip": True, "max_grad_norm": 0.1},
        {"lr": 0.1, "weight_decay": 0.1, "trust_clip": True},
        {"lr": 0.1, "grad_averaging": False},
        {"lr": 0.1, "bias_correction": False, "weight_decay": 0.1},
        {"lr": 0.1, "weight_decay": 0.0, "always_adapt": True},
    ],
)
def test_lamb_follows_its_formula(options):
    torch.testing.assert_close(trained(lambda params: LAMB(params, **options)), lamb_by_hand(**options))


def test_scratch_memory_that_grows_is_not_shared_with_what_was_before():
    """Two groups of different sizes and types take turns; each step is that of a fresh optimizer with one group."""

    def run(*kinds: tuple[int, torch.dtype]) -> list[list[float]]:
        params = [torch.nn.Parameter(torch.ones(size, dtype=dtype)) for size, dtype in kinds]
        optimizer = LAMB([{"params": [param]} for param in params], lr=0.1, max_grad_norm=None)
        for _ in range(3):
            for param in params:
                param.grad = torch.full_like(param, 0.5)
            optimizer.step()
        return [param.tolist() for param in params]

    kinds = [(2, torch.float32), (5, torch.float64), (7, torch.float32), (3, torch.float64), (2, torch.float32)]
    assert run(*kinds) == [run(kind)[0] for kind in kinds]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("most", [None, 0.5, 100.0])
def test_gradients_are_divided_only_where_their_norm_is_too_large(dtype, most):
    weight = torch.nn.Parameter(torch.ones(4, dtype=dtype))
    optimizer = LAMB([weight], max_grad_norm=most)
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert weight.grad.tolist() == pytest.approx([0.25 if most == 0.5 else 1.0] * 4)
    weight.grad = None
    optimizer.step()
    assert optimizer.param_groups[0]["step"] == 2
