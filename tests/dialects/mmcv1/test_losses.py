"""mmclassification's cross entropy: what it is divided by, weighted with, and left as."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mmcls.models import CrossEntropyLoss, ImageClassifier, LinearClsHead
from torch.nn.functional import log_softmax

SCORES = torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.0, -0.5], [0.1, 0.2, 0.3], [-1.0, 2.0, 0.0]])
LABELS = torch.tensor([2, 0, 1, 1])
CLASS = torch.tensor([1.0, 2.0, 5.0])
SAMPLE = torch.tensor([1.0, 0.5, 0.0, 2.0])

PER_SAMPLE = -log_softmax(SCORES, 1)[range(4), LABELS]


@pytest.mark.parametrize(
    ("settings", "call", "expected"),
    [
        ({}, {}, PER_SAMPLE.mean()),
        ({}, {"avg_factor": 2}, PER_SAMPLE.sum() / 2),
        ({"loss_weight": 3.0}, {"weight": SAMPLE}, 3 * (PER_SAMPLE * SAMPLE).mean()),
        ({"class_weight": [1, 2, 5]}, {"avg_factor": 4}, (PER_SAMPLE * CLASS[LABELS]).sum() / 4),
        ({"reduction": "sum"}, {}, PER_SAMPLE.sum()),
        ({}, {"reduction_override": "none"}, PER_SAMPLE),
    ],
)
def test_each_sample_is_weighted_and_the_sum_divided(settings: Any, call: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(CrossEntropyLoss(**settings)(SCORES, LABELS, **call), expected)


def test_a_head_divides_by_the_number_of_samples() -> None:
    head = LinearClsHead(3, 3, loss={"type": "CrossEntropyLoss", "class_weight": [1, 2, 5]})
    found = head.loss(SCORES, LABELS)["loss"]
    torch.testing.assert_close(found, (PER_SAMPLE * CLASS[LABELS]).sum() / 4)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: CrossEntropyLoss(use_sigmoid=True), "come with mmcls; pip install mmcls==0.25.0"),
        (lambda: CrossEntropyLoss()(SCORES, LABELS, reduction_override="men"), "reduction_override must be one of"),
        (lambda: CrossEntropyLoss(reduction="sum")(SCORES, LABELS, avg_factor=2), "avg_factor can not be used"),
        (
            lambda: ImageClassifier({}, train_cfg={"augments": {"type": "BatchMixup"}}),
            "train_cfg.augments .* not served",
        ),
    ],
)
def test_what_it_refuses(make: Any, told: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=told):
        make()
