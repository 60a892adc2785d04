"""Clipping of gradients: bitwise as torch does it, by value, by group and by the size of the weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import etude
from etude.errors import ConfigError
from etude.optim.clipping import AGC, Gradients, Norm, Value, describe_wrong


def params_with(grads: list[torch.Tensor | None]) -> list[nn.Parameter]:
    params = [nn.Parameter(torch.zeros(3) if grad is None else torch.zeros_like(grad)) for grad in grads]
    for param, grad in zip(params, grads, strict=True):
        param.grad = None if grad is None else grad.clone()
    return params


def both(grads: list[torch.Tensor | None], most: float, peeks: bool) -> None:
    """Compare with torch, bit by bit."""
    ours, theirs = params_with(grads), params_with(grads)
    norm, expected = Norm(most)(Gradients([ours], peeks=peeks)), nn.utils.clip_grad_norm_(theirs, most)
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
    Norm(10.0)(Gradients([[param]], peeks=True))
    assert param.grad._version == version
    Norm(1.0)(Gradients([[param]], peeks=True))
    assert param.grad._version > version


def test_each_group_is_limited_by_itself():
    small, large = params_with([torch.tensor([0.5, 0.0]), torch.tensor([3.0, 4.0])])
    assert Norm(1.0, per="group")(Gradients([[small], [large]])) is None
    assert small.grad.tolist() == [0.5, 0.0]
    torch.testing.assert_close(large.grad, torch.tensor([0.6, 0.8]))


def test_adaptive_clipping_compares_each_row_with_its_weights():
    weight, bias = nn.Parameter(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), nn.Parameter(torch.tensor([3.0, 4.0]))
    weight.grad, bias.grad = torch.tensor([[6.0, 8.0], [1.0, 0.0]]), torch.tensor([0.01, 0.0])
    AGC(factor=0.1, eps=0.01)(Gradients([[weight, bias]]))
    torch.testing.assert_close(weight.grad, torch.tensor([[0.3, 0.4], [0.001, 0.0]]))
    torch.testing.assert_close(bias.grad, torch.tensor([0.01, 0.0]))


@pytest.mark.parametrize("kind", [Norm, Value, AGC])
@pytest.mark.parametrize("wrong", [0, -1.0, float("nan")])
def test_a_limit_that_would_stop_training_is_refused(kind, wrong):
    with pytest.raises(ConfigError, match="must be more than zero"):
        kind(wrong)
    with pytest.raises(ConfigError, match="per is 'layer'"):
        Norm(1.0, per="layer")


def test_adaptive_clipping_is_refused_where_weights_are_split():
    assert "splits them (shard)" in describe_wrong([AGC()], {"tensor": 1, "shard": 2, "pipeline": 1})
    assert not describe_wrong([Norm(1.0)], {"tensor": 2, "shard": 1, "pipeline": 1})


class Halve:
    """A clipping of a user's own."""

    def __call__(self, gradients):
        for param in gradients.params:
            param.grad /= 2


def trained(**options):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = etude.Trainer(model, optimizer=optimizer, loss=nn.MSELoss(), quiet=True, **options)
    data = [(torch.ones(4, 3), torch.ones(4, 2)) for _ in range(3)]
    run = trainer.fit(data, epochs=1)
    return [p.detach().clone() for p in model.parameters()], run


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ({"clip_norm": 0.1}, {"clip": {"type": "Norm", "max": 0.1}}),
        ({"clip_value": 0.01}, {"clip": [Value(0.01)]}),
        ({"clip_norm": 0.1, "clip_value": 0.01}, {"clip": [{"type": "Norm", "max": 0.1}, Value(0.01)]}),
    ],
)
def test_a_trainer_takes_short_words_words_of_a_config_and_objects(short, whole):
    one, two, plain = trained(**short), trained(**whole), trained()
    assert all(map(torch.equal, one[0], two[0])) and not all(map(torch.equal, one[0], plain[0]))
    assert trained(clip=Halve())[1].norm > 0.1
    with pytest.raises(ConfigError, match="no clipping is called 'Nrom'"):
        trained(clip="Nrom")
