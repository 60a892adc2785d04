"""What a model gets of a batch when there is nothing to learn, and how its answers are joined."""

from __future__ import annotations

import pytest
import torch

from etude.core.forward import Forward
from etude.core.predict import inputs_of, joined, predict
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


class Net(torch.nn.Linear):
    """Doubles while it trains, and may want more than the inputs."""

    def __init__(self) -> None:
        super().__init__(1, 1, bias=False)
        torch.nn.init.ones_(self.weight)

    def forward(self, x):
        return super().forward(x) * (2 if self.training else 1)


class WithTarget(Net):
    def forward(self, x, target):
        return {"scores": super().forward(x), "count": target}


class Broken(Net):
    def forward(self, x, target=None):
        raise TypeError("inside" if target is None else "called again")


def test_predictions_are_numbers_of_eval_mode_on_the_cpu_and_the_model_trains_on():
    net, batches = Net(), [(torch.ones(2, 1), "target"), (torch.ones(1, 1), "target")]
    answers = predict(Forward(net, {"loss": torch.nn.MSELoss()}), batches, device=torch.device("cpu"))
    assert answers.tolist() == [[1.0]] * 3 and not answers.requires_grad and net.training
    net.eval()
    assert predict(Forward(net.bfloat16(), {}), [torch.ones(1, 1).bfloat16()]).dtype is torch.float32
    assert not net.training
    assert predict(Forward(torch.nn.Identity(), {}), [torch.ones(2, dtype=torch.long)]).dtype is torch.int64
    with pytest.raises(UserCodeError, match="nothing to predict"):
        predict(Forward(net, {}), [])


def test_a_model_that_computes_its_loss_may_need_the_target_too():
    batch = (torch.ones(2, 1), torch.zeros(2))
    assert list(predict(Forward(WithTarget(), {}), [batch])) == ["scores", "count"]
    with pytest.raises(TypeError, match="'target'"):
        predict(Forward(WithTarget(), {"loss": torch.nn.MSELoss()}), [batch])
    with pytest.raises(TypeError, match="inside"):
        predict(Forward(Broken(), {}), [batch])


def test_outputs_without_names_are_numbered_and_others_refused():
    class Pair(Net):
        def forward(self, x):
            return (x, x + 1) if len(x) else ()

    assert {name: value.tolist() for name, value in predict(Forward(Pair(), {}), [torch.ones(1)]).items()} == {
        "0": [1.0],
        "1": [2.0],
    }
    with pytest.raises(UserCodeError, match="the model returns a tuple; predictions are tensors"):
        predict(Forward(Pair(), {}), [torch.ones(0)])
