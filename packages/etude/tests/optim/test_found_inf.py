"""Losses that the device checks, and which optimizers take kernels that look at the result."""

from __future__ import annotations

import pytest
import torch

from etude.optim.factory import _can_fuse
from etude.optim.found_inf import Unread, takes_found_inf

GOOD, BAD = torch.tensor(1.0), torch.tensor(float("nan"))


def sgd(**options) -> torch.optim.Optimizer:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    return torch.optim.SGD([weight], lr=0.5, **options)


def test_fused_optimizers_can_be_told_on_the_device():
    assert takes_found_inf(sgd(fused=True)) and not takes_found_inf(sgd(foreach=True))


@pytest.mark.parametrize(("lasting", "changed"), [(True, [True, False, False]), (False, [True, False, True])])
def test_a_bad_loss_leaves_the_weights_alone_for_its_step_or_until_it_is_read(lasting, changed):
    optimizer = sgd(fused=True)
    unread = Unread([optimizer], torch.device("cpu"), lasting=lasting)
    (weight,) = optimizer.param_groups[0]["params"]
    seen = []
    for loss in (GOOD, BAD, GOOD):
        before = weight.item()
        unread.look(loss)
        optimizer.step()
        seen.append(weight.item() != before)
    assert seen == changed


def test_rows_of_bad_losses_are_counted_until_a_good_one():
    unread = Unread([], torch.device("cpu"), lasting=False)
    assert unread.read() == (0, 0)
    for loss in (BAD, BAD, GOOD, BAD):
        unread.look(loss)
    assert unread.read() == (1, 2) and unread.read() == (1, 1)
    unread.look(GOOD)
    assert unread.read() == (0, 1) and unread.read() == (0, 0)
    unread.set_row(2)
    unread.look(BAD)
    assert unread.read() == (3, 3)


def test_parameters_of_one_device_and_a_known_type_are_fused():
    def made(dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.nn.Parameter:
        return torch.nn.Parameter(torch.ones(1, dtype=dtype, device=device))

    assert _can_fuse([made(), made(torch.float64)]) and not _can_fuse([made(), made(torch.bfloat16)])
    assert not _can_fuse([]) and not _can_fuse([made(), made(device="meta")]) and not _can_fuse([made(device="meta")])
