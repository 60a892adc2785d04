"""Clipping and clearing of gradients: the bits of torch, with fewer calls."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from etude.optim.gradients import ClipNorm, clear


def params_with(grads: list[torch.Tensor | None]) -> list[nn.Parameter]:
    params = [nn.Parameter(torch.zeros(3) if grad is None else torch.zeros_like(grad)) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = None if grad is None else grad.clone()
    return params


def both(grads: list[torch.Tensor | None], most: float, peeks: bool) -> None:
    """Compare with torch, bit by bit."""
    ours, theirs = params_with(grads), params_with(grads)
    norm, expected = ClipNorm(ours, most, peeks=peeks)(), nn.utils.clip_grad_norm_(theirs, most)
    torch.testing.assert_close(norm, expected, rtol=0, atol=0, equal_nan=True)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=0, atol=0, equal_nan=True)


@given(
    seed=st.integers(0, 1000),
    scale=st.floats(1e-6, 1e6),
    most=st.floats(1e-3, 1e3),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    peeks=st.booleans(),
)
def test_clipping_has_the_bits_of_torch(seed, scale, most, dtype, peeks):
    generator = torch.Generator().manual_seed(seed)
    grads = [(torch.randn(shape, generator=generator) * scale).to(dtype) for shape in ((3, 4), (5,), ())]
    both([*grads, None], most, peeks)


@pytest.mark.parametrize("norm", [0.0, 0.99, 0.9999, 1.0 - 1e-6, 1.0, 1.0 + 1e-6, 1.0001, 2.0])
@pytest.mark.parametrize("peeks", [True, False])
def test_clipping_close_to_the_limit_has_the_bits_of_torch(norm, peeks):
    both([torch.tensor([norm, 0.0])], 1.0, peeks)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_norm_that_is_not_finite_spoils_the_gradients_as_in_torch(bad):
    both([torch.tensor([bad, 1.0]), torch.ones(2)], 1.0, True)


def test_parameters_of_several_types_and_none_at_all_are_clipped_too():
    both([torch.full((2,), 5.0), torch.full((2,), 5.0, dtype=torch.float64)], 1.0, True)
    both([None], 1.0, True)


def test_gradients_below_the_limit_are_not_written():
    param = params_with([torch.ones(2)])[0]
    version = param.grad._version
    ClipNorm([param], 10.0, peeks=True)()
    assert param.grad._version == version
    ClipNorm([param], 1.0, peeks=True)()
    assert param.grad._version > version


def test_gradients_of_all_groups_are_cleared_those_that_came_later_included():
    first, second = params_with([torch.ones(2), torch.ones(3)])
    optimizer = torch.optim.SGD([first], lr=0.1)
    optimizer.add_param_group({"params": [second]})
    clear([optimizer])
    assert first.grad is None and second.grad is None


def test_an_optimizer_with_a_zero_grad_of_its_own_keeps_it():
    class Keeps(torch.optim.SGD):
        def zero_grad(self, set_to_none: bool = True) -> None:
            super().zero_grad(set_to_none=False)

    param, other = params_with([torch.ones(2), torch.ones(3)])
    clear([Keeps([param], lr=0.1), torch.optim.SGD([other], lr=0.1)])
    assert param.grad.tolist() == [0.0, 0.0] and other.grad is None
