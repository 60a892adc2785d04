"""What a model gets of a batch when there is nothing to learn, and how its answers are joined."""

from __future__ import annotations

import pytest
import torch

from etude.core.forward import Forward
from etude.core.predict import inputs_of, joined
from etude.errors import UserCodeError


@pytest.mark.parametrize(
    ("batch", "given"),
    [
        (("x", "target"), ("x",)), (["x", "more", "target"], ["x", "more"]), (("x",), ("x",)), ("text", "text"),
        ({"image": 1, "target": 2}, {"image": 1}),
    ],
)  # fmt: skip
def test_the_model_gets_all_but_the_target(batch, given):
    assert inputs_of(Forward(torch.nn.Linear(1, 1), None, target_keys=("target",)), batch) == given


def test_answers_are_joined_by_name_and_a_number_per_batch_is_left_out():
    answers = [{"scores": torch.ones(2, 3), "loss": torch.tensor(1.0)}, {"scores": torch.zeros(1, 3)}]
    assert joined(answers)["scores"].tolist() == [[1.0] * 3, [1.0] * 3, [0.0] * 3] and len(joined(answers)) == 1
    assert joined([torch.tensor(1.0), torch.tensor(2.0)]).tolist() == [1.0, 2.0]
    with pytest.raises(UserCodeError, match="no tensor per sample: it returns loss"):
        joined([{"loss": torch.tensor(1.0)}])
