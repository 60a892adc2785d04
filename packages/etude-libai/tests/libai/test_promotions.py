"""What OneFlow computes and torch refuses."""

from __future__ import annotations

import pytest
import torch

from etude.dialects import imports

imports.install()

import oneflow as flow  # noqa: E402
from oneflow import nn  # noqa: E402

MASK = flow.tensor([[True, False], [False, False]])


def test_bools_have_differences_and_signs() -> None:
    assert (1 - MASK).tolist() == [[0, 1], [1, 1]] and (1 - MASK).dtype is torch.int64
    assert (MASK - 1).tolist() == flow.sub(MASK, 1).tolist() == MASK.sub(1).tolist() == [[0, -1], [-1, -1]]
    assert (-MASK).tolist() == flow.neg(MASK).tolist() == MASK.neg().tolist() == [[-1, 0], [0, 0]]
    assert (torch.ones(2, 2) - MASK).tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert (2.5 - torch.ones(1)).item() == 1.5


@pytest.mark.parametrize("kind", [torch.int8, torch.int32, torch.bool])
def test_masks_and_conditions_may_be_integers(kind: torch.dtype) -> None:
    mask, x = MASK.to(kind), torch.zeros(2, 2)
    for made in (x.masked_fill(mask, 5.0), flow.masked_fill(x, mask, 5.0), x.clone().masked_fill_(mask, 5.0)):
        assert made.tolist() == [[5.0, 0.0], [0.0, 0.0]]
    assert flow.where(mask, x + 1, x).tolist() == (x + 1).where(mask, x).tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_a_mean_of_integers_is_a_float() -> None:
    x = torch.tensor([[1, 2], [3, 5]])
    assert x.mean().item() == flow.mean(x).item() == 2.75
    assert x.mean(dim=1, keepdim=True).tolist() == [[1.5], [4.0]]
    assert x.mean(dtype=torch.float64).dtype is torch.float64


def test_labels_may_be_int32() -> None:
    logits, labels = torch.randn(3, 4), torch.tensor([0, 3, 1])
    wanted = torch.nn.functional.cross_entropy(logits, labels)
    assert nn.CrossEntropyLoss()(logits, labels.int()) == nn.functional.cross_entropy(logits, labels.int()) == wanted
    assert flow._C.cross_entropy(logits, labels.int()) == wanted
    logs = logits.log_softmax(1)
    assert nn.NLLLoss()(logs, labels.int()) == nn.functional.nll_loss(logs, labels.int()) == wanted


def test_softmax_needs_no_dimension() -> None:
    for shape, dim in (((4,), 0), ((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 4, 5), 1)):
        x = torch.randn(shape)
        for own, theirs in ((flow.softmax, torch.softmax), (nn.functional.log_softmax, torch.log_softmax)):
            assert torch.equal(own(x), theirs(x, dim))


def test_scatter_takes_a_number() -> None:
    index, on = torch.tensor([[1], [0]]), [[0.0, 1.0], [1.0, 0.0]]
    assert flow.scatter(torch.zeros(2, 2), dim=1, index=index, src=1.0).tolist() == on
    assert flow.scatter(torch.zeros(2, 2), 1, index.int(), torch.ones(2, 1)).tolist() == on


def test_a_view_of_any_layout() -> None:
    x = torch.arange(6).view(2, 3).transpose(0, 1)
    assert x.view(-1).tolist() == x.view((6,)).tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.ones(2).view(torch.int32).dtype is torch.int32
    with pytest.raises(RuntimeError, match="is invalid for input of size 6"):
        x.view(4)
