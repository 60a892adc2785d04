"""LARS and LAMB against a plain loop over the published formulas."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.optim.foreach import CACHED, kernels_fit, lerp_, pieces, with_grads
from etude.optim.lamb import LAMB
from etude.optim.lars import LARS
from tests.sampling import examples

SHAPES = [(3, 4), (4,), (2, 3, 2), ()]


def tensors(seed: int, shapes=SHAPES) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def trained(make, shapes=SHAPES, dtype=torch.float64, *, steps: int = 4) -> list[torch.Tensor]:
    params = [torch.nn.Parameter(tensor.to(dtype)) for tensor in tensors(0, shapes)]
    params[1].data.zero_()
    optimizer = make(params)
    for step in range(steps):
        for number, (parameter, grad) in enumerate(zip(params, tensors(step + 1, shapes), strict=True)):
            late = number == 2 and step == 0
            parameter.grad = None if late else (grad * (0.0 if step == 2 else 1.0)).to(dtype)
        optimizer.step()
        if step == 1:
            again = make(params)
            again.load_state_dict(optimizer.state_dict())
            optimizer = again
    return [parameter.detach() for parameter in params]


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


def lamb_by_hand(
    lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, grad_averaging=True,
    max_grad_norm=1.0, trust_clip=False, always_adapt=False, shapes=SHAPES,
):  # fmt: skip
    params, moments = tensors(0, shapes), {}
    params[1].zero_()
    for step in range(4):
        grads = {n: g * (0.0 if step == 2 else 1.0) for n, g in enumerate(tensors(step + 1, shapes)) if n != 2 or step}
        if max_grad_norm is not None:
            whole = torch.stack([g.norm() for g in grads.values()]).norm()
            grads = {n: g / max(1.0, float(whole) / max_grad_norm) for n, g in grads.items()}
        c1, c2 = (1 - betas[0] ** (step + 1), 1 - betas[1] ** (step + 1)) if bias_correction else (1.0, 1.0)
        for n, g in grads.items():
            w = params[n]
            m, v = moments.get(n, (torch.zeros_like(w), torch.zeros_like(w)))
            m = betas[0] * m + (1 - betas[0] if grad_averaging else 1.0) * g
            v = betas[1] * v + (1 - betas[1]) * g * g
            moments[n] = m, v
            u = (m / c1) / (v.sqrt() / c2**0.5 + eps) + weight_decay * w
            if weight_decay != 0 or always_adapt:
                ratio = w.norm() / u.norm() if w.norm() > 0 and u.norm() > 0 else torch.ones(())
                u = u * (ratio.clamp(max=1.0) if trust_clip else ratio)
            w -= lr * u
    return params


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


sizes = st.lists(st.lists(st.integers(1, 40), max_size=2).map(tuple), min_size=2, max_size=5)
some = st.floats(0.0, 0.9)
decays = st.just(0.0) | st.floats(1e-3, 0.9)  # a smaller one vanishes in types that round


@settings(max_examples=examples(40), deadline=None)
@given(shapes=sizes, dtype=st.sampled_from([torch.float32, torch.bfloat16]), momentum=some, decay=decays, clip=some)
def test_formulas_hold_for_any_shapes_in_types_that_round(shapes, dtype, momentum, decay, clip):
    lars = {"lr": 0.5, "momentum": momentum, "weight_decay": decay, "eta": 0.1}
    lamb = {"lr": 0.1, "betas": (momentum, 0.9), "weight_decay": decay, "max_grad_norm": clip + 0.1}
    near = {"rtol": 1e-3, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 0.05, "atol": 0.1}
    for kind, options, by_hand in ((LARS, lars, lars_by_hand), (LAMB, lamb, lamb_by_hand)):
        found = trained(lambda params, kind=kind, options=options: kind(params, **options), shapes, dtype)
        torch.testing.assert_close([tensor.double() for tensor in found], by_hand(**options, shapes=shapes), **near)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weight", [0.001, 0.3, 0.7, 1.0])
def test_an_average_moves_as_lerp_does_to_the_bit(dtype, weight):
    shapes = [(), (3,), (17,), (40, 33)]
    start, end = ([tensor.to(dtype) for tensor in tensors(seed, shapes)] for seed in (0, 1))
    moved = [tensor.clone() for tensor in start]
    lerp_(moved, end, weight)
    expected = [torch.lerp(one, other, weight) for one, other in zip(start, end, strict=True)]
    assert all(torch.equal(one, other) for one, other in zip(moved, expected, strict=True))


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


def test_kernels_of_a_cpu_take_tensors_that_lie_in_order():
    plain, turned = torch.ones(2, 3), torch.ones(3, 2).t()
    assert kernels_fit([plain], [plain]) and kernels_fit([plain.double()], [plain.double()])
    for params, grads in (([plain, turned], [plain]), ([plain], [plain, turned]), ([plain.half()], [plain.half()])):
        assert not kernels_fit(params, grads)
    assert not kernels_fit([plain.to("meta")], [plain.to("meta")])


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


def test_lists_are_cut_where_they_leave_the_cache():
    def cut(*sizes: int, device: str = "cpu") -> list[tuple[int, int]]:
        return list(pieces([torch.empty(1, device=device).expand(size) for size in sizes]))

    half = CACHED // 2
    assert cut() == [] and cut(1) == [(0, 1)] and cut(3 * CACHED) == [(0, 1)]
    assert cut(half, half) == [(0, 2)] and cut(half, half + 1) == [(0, 1), (1, 2)]
    assert cut(half, half, 1) == [(0, 2), (2, 3)] and cut(2 * CACHED, 1, half) == [(0, 1), (1, 3)]
    assert cut(half, half, half, half, half) == [(0, 2), (2, 4), (4, 5)]
    assert cut(half, half, half, device="meta") == [(0, 3)]


def test_parameters_of_a_group_come_by_type_and_those_without_a_gradient_not_at_all():
    params = [torch.nn.Parameter(torch.ones(n + 1, dtype=t)) for n, t in enumerate((torch.float32, torch.float64) * 2)]
    for param in params[1:]:
        param.grad = torch.ones_like(param)
    found = [([len(p) for p in own], [len(g) for g in grads]) for own, grads in with_grads({"params": params})]
    assert found == [([2, 4], [2, 4]), ([3], [3])]


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
