"""Tests of :mod:`etude.optim.lars`."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.optim.lamb import LAMB
from etude.optim.lars import LARS
from tests.optim.support import SHAPES, lamb_by_hand, sizes, tensors, trained
from tests.sampling import examples


def lars_by_hand(
    lr, momentum=0.0, weight_decay=0.0, dampening=0.0, eta=0.001, nesterov=False, eps=1e-8, exclude=False,
    shapes=SHAPES,
):  # fmt: skip
    params, buffers = tensors(0, shapes), {}
    params[1].zero_()
    for step in range(4):
        for n, (w, g) in enumerate(zip(params, tensors(step + 1, shapes), strict=True)):
            if n == 2 and step == 0:
                continue
            g = g * (0.0 if step == 2 else 1.0)
            local = 1.0
            if not exclude and w.norm() > 0 and g.norm() > 0:
                local = eta * w.norm() / (g.norm() + weight_decay * w.norm() + eps)
            u = (g + weight_decay * w) * (local * lr)
            if momentum == 0:
                w -= u
                continue
            buffers[n] = momentum * buffers[n] + (1 - dampening) * u if n in buffers else u
            w -= u + momentum * buffers[n] if nesterov else buffers[n]
    return params


some = st.floats(0.0, 0.9)


decays = st.just(0.0) | st.floats(1e-3, 0.9)  # a smaller one vanishes in types that round


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.3},
        {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.1},
        {"lr": 1.0, "momentum": 0.8, "dampening": 0.3, "eta": 0.01},
        {"lr": 0.3, "momentum": 0.9, "nesterov": True, "eps": 0.1},
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.05, "exclude": True},
    ],
)
def test_lars_follows_its_formula(options):
    ours = {**options, "lars_exclude": options.get("exclude", False)}
    ours.pop("exclude", None)
    torch.testing.assert_close(trained(lambda params: LARS(params, **ours)), lars_by_hand(**options))


@settings(max_examples=examples(40), deadline=None)
@given(shapes=sizes, dtype=st.sampled_from([torch.float32, torch.bfloat16]), momentum=some, decay=decays, clip=some)
def test_formulas_hold_for_any_shapes_in_types_that_round(shapes, dtype, momentum, decay, clip):
    lars = {"lr": 0.5, "momentum": momentum, "weight_decay": decay, "eta": 0.1}
    lamb = {"lr": 0.1, "betas": (momentum, 0.9), "weight_decay": decay, "max_grad_norm": clip + 0.1}
    near = {"rtol": 1e-3, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 0.05, "atol": 0.1}
    for kind, options, by_hand in ((LARS, lars, lars_by_hand), (LAMB, lamb, lamb_by_hand)):
        found = trained(lambda params, kind=kind, options=options: kind(params, **options), shapes, dtype)
        torch.testing.assert_close([tensor.double() for tensor in found], by_hand(**options, shapes=shapes), **near)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: LARS(p, -0.1),
        lambda p: LARS(p, 0.1, nesterov=True),
        lambda p: LARS(p, 0.1, nesterov=True, momentum=0.9, dampening=0.1),
        lambda p: LAMB(p, -0.1),
        lambda p: LAMB(p, betas=(1.0, 0.9)),
        lambda p: LAMB(p, betas=(0.9, -0.1)),
    ],
)
def test_options_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError):
        make([torch.nn.Parameter(torch.zeros(1))])


@pytest.mark.parametrize("make", [LAMB, lambda params: LARS(params, lr=0.1, momentum=0.9)])
def test_a_copy_of_an_optimizer_steps_as_the_original_does(make):
    params = [torch.nn.Parameter(tensor) for tensor in tensors(0)]
    optimizer = make(params)
    for parameter, grad in zip(params, tensors(1), strict=True):
        parameter.grad = grad
    optimizer.step()
    copied = copy.deepcopy(optimizer)
    for one in (optimizer, copied):
        for parameter, grad in zip(one.param_groups[0]["params"], tensors(2), strict=True):
            parameter.grad = grad
        one.step()
    assert all(map(torch.equal, params, copied.param_groups[0]["params"]))


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_state_of_another_lars_without_the_word_for_exclusion_is_adapted(contiguous, momentum):
    def stepped(*, drop: bool, exclude: bool = False) -> torch.Tensor:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(4, 3) if contiguous else torch.randn(3, 4).t())
        optimizer = LARS([weight], lr=0.5, momentum=momentum, lars_exclude=exclude)
        weight.grad = torch.randn(4, 3)
        if drop:
            del optimizer.param_groups[0]["lars_exclude"]
        optimizer.step()
        return weight.detach()

    usual = stepped(drop=False)
    assert torch.equal(stepped(drop=True), usual) and not torch.equal(stepped(drop=False, exclude=True), usual)


def test_dampening_holds_from_the_second_step_on_for_tensors_out_of_order():
    def steps(dampening: float) -> list[float]:
        weight = torch.nn.Parameter(torch.ones(3, 2).t())
        optimizer = LARS([weight], lr=1.0, momentum=0.5, dampening=dampening, lars_exclude=True)
        seen = []
        for _ in range(2):
            before = weight.detach().clone()
            weight.grad = torch.ones(2, 3)
            optimizer.step()
            seen.append(float((before - weight.detach())[0, 0]))
        return seen

    assert steps(0.0) == [1.0, 1.5] and steps(0.75) == [1.0, 0.75]


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"lr": 0.3}, {"lr": 0.3, "weight_decay": 0.1}, {"lr": 0.3, "momentum": 1.0},
        {"lr": 0.3, "momentum": 1.0, "weight_decay": 1.0, "eta": 0.5},
        {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True, "eta": 0.5},
        {"lr": 0.3, "weight_decay": 1.0, "exclude": True},
    ],
)  # fmt: skip
def test_lars_follows_its_formula_for_tensors_in_any_order(options, contiguous):
    shapes = [(3, 4), (4, 2), (2, 3), (2, 2)]
    ours = {**options, "lars_exclude": options.get("exclude", False)}
    ours.pop("exclude", None)

    def make(params):
        if not contiguous:
            for param in params:
                param.data = param.data.t().contiguous().t()
        return LARS(params, **ours)

    torch.testing.assert_close(trained(make, shapes), lars_by_hand(**options, shapes=shapes))


@pytest.mark.parametrize("make", [lambda params: LARS(params, lr=0.5), lambda params: LAMB(params, lr=0.5)])
def test_a_step_with_a_closure_computes_the_loss_with_gradients_and_returns_it(make):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = make([weight])

    def closure():
        optimizer.zero_grad()
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 2.0 and weight.grad is not None
    assert bool((weight < 1.0).all()) and optimizer.step() is None


@pytest.mark.parametrize("make", [lambda params: LARS(params, lr=0.5), lambda params: LAMB(params, lr=0.5)])
def test_sparse_gradients_are_refused(make):
    table = torch.nn.Embedding(3, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse gradients are not supported"):
        make(table.parameters()).step()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: LARS(p, 0.1, momentum=-1.0), "momentum is -1.0"), (lambda p: LARS(p, 0.1, eps=-1.0), "eps is -1.0"),
        (lambda p: LARS(p, 0.1, momentum=0.9, dampening=0.1, nesterov=True), "nesterov needs"),
        (lambda p: LARS(p, 0.1, momentum=0.0, nesterov=True), "nesterov needs"),
        (lambda p: LAMB(p, betas=(0.9, 1.0)), "below 1"), (lambda p: LAMB(p, betas=(-0.1, 0.9)), "at least 0"),
        (lambda p: LAMB(p, weight_decay=-0.1), "weight_decay is -0.1; it must not be negative"),
    ],
)  # fmt: skip
def test_an_option_that_makes_no_sense_is_named(make, says):
    with pytest.raises(ValueError, match=says):
        make([torch.nn.Parameter(torch.zeros(1))])


def test_options_may_be_at_their_limits():
    params = [torch.nn.Parameter(torch.zeros(1))]
    LARS(params, 0.0, momentum=0.9, weight_decay=0.0, eta=0.0, nesterov=True, eps=0.0)
    LAMB(params, 0.0, betas=(0.0, 0.0), eps=0.0, weight_decay=0.0)
