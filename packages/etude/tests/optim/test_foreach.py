"""Tests of :mod:`etude.optim.foreach`."""

from __future__ import annotations

import pytest
import torch

from etude.optim.foreach import CACHED, kernels_fit, lerp_, pieces, with_grads
from tests.optim.support import tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("weight", [0.001, 0.3, 0.7, 1.0])
def test_an_average_moves_as_lerp_does_to_the_bit(dtype, weight):
    shapes = [(), (3,), (17,), (40, 33)]
    start, end = ([tensor.to(dtype) for tensor in tensors(seed, shapes)] for seed in (0, 1))
    moved = [tensor.clone() for tensor in start]
    lerp_(moved, end, weight)
    expected = [torch.lerp(one, other, weight) for one, other in zip(start, end, strict=True)]
    assert all(torch.equal(one, other) for one, other in zip(moved, expected, strict=True))


def test_kernels_of_a_cpu_take_tensors_that_lie_in_order():
    plain, turned = torch.ones(2, 3), torch.ones(3, 2).t()
    assert kernels_fit([plain], [plain]) and kernels_fit([plain.double()], [plain.double()])
    for params, grads in (([plain, turned], [plain]), ([plain], [plain, turned]), ([plain.half()], [plain.half()])):
        assert not kernels_fit(params, grads)
    assert not kernels_fit([plain.to("meta")], [plain.to("meta")])


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
