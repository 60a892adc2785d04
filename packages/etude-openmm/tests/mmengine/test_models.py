from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.mmengine import toy  # noqa: F401  # isort: skip  (serves the names below)
from mmengine.model import (
    BaseAveragedModel,
    BaseModel,
    ExponentialMovingAverage,
    MomentumAnnealingEMA,
    StochasticWeightAverage,
    is_model_wrapper,
    revert_sync_batchnorm,
)


class Plain(BaseModel):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return kwargs or args


def test_the_total_sums_what_is_called_loss_and_stands_first() -> None:
    a, b = torch.tensor([1.0, 3.0]), torch.tensor(4.0)
    total, logged = Plain().parse_losses({"loss_a": a, "acc": b, "lossless": [a, b], "Loss": b})
    assert total == 2 + 2 + 4
    assert list(logged) == ["loss", "loss_a", "acc", "lossless", "Loss"] and logged["loss"] == 8
    total, logged = Plain().parse_losses({"loss_a": a, "loss": b})
    assert total == 6 and logged["loss"] == 4 and next(iter(logged)) == "loss"
    for wrong in (1.0, "x", [1.0]):
        with pytest.raises(TypeError):
            Plain().parse_losses({"loss": wrong})


def test_the_batch_reaches_forward_by_its_form() -> None:
    model = Plain()
    assert model._run_forward({"x": 1}, mode="loss") == {"x": 1, "mode": "loss"}
    with pytest.raises(TypeError):
        model._run_forward("x", mode="loss")
    with pytest.raises(TypeError):
        Plain(data_preprocessor="x")


def test_losses_stay_tensors_until_they_are_read() -> None:
    class Strict(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            assert "_local_scalar_dense" not in str(func)
            return func(*args, **(kwargs or {}))

    with Strict():
        Plain().parse_losses({"loss_a": torch.ones(3), "loss_b": [torch.ones(2), torch.ones(())]})


@pytest.mark.parametrize("buffers", [False, True])
def test_averages_follow_their_formulas_in_one_kernel_or_tensor_by_tensor(buffers: bool) -> None:
    class ByHand(BaseAveragedModel):
        def avg_func(self, averaged_param: torch.Tensor, source_param: torch.Tensor, steps: Any) -> None:
            averaged_param.mul_(0.9).add_(source_param, alpha=0.1)

    source = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    fast = ExponentialMovingAverage(source, momentum=0.1, update_buffers=buffers)
    slow = ByHand(source, update_buffers=buffers)
    for _ in range(5):
        source(torch.randn(4, 3))
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(torch.randn_like(parameter))
        fast.update_parameters(source)
        slow.update_parameters(source)
    assert int(fast.steps) == 5
    for one, other in zip(fast.module.state_dict().values(), slow.module.state_dict().values(), strict=True):
        assert torch.allclose(one.double(), other.double(), atol=1e-6)
    same = torch.equal(fast.module[1].running_mean, source[1].running_mean)
    assert same is not buffers


def test_an_average_survives_new_buffers_shared_weights_and_a_loaded_state() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
            self.b.weight = self.a.weight
            self.register_buffer("seen", torch.zeros(()))

    model = Odd()
    average = ExponentialMovingAverage(model, momentum=0.5)
    average.update_parameters(model)
    with torch.no_grad():
        model.a.weight += 1
    model.seen = model.seen + 7
    average.update_parameters(model)
    assert torch.allclose(average.module.a.weight, model.a.weight - 0.5) and average.module.seen == 7
    other = ExponentialMovingAverage(Odd(), momentum=0.5)
    other.load_state_dict(average.state_dict())
    other.update_parameters(model)
    assert int(other.steps) == 3 and torch.allclose(other.module.a.weight, model.a.weight - 0.25)


def test_kinds_of_averages_check_their_numbers() -> None:
    for kind, wrong in ((ExponentialMovingAverage, {"momentum": 3}), (MomentumAnnealingEMA, {"gamma": -1})):
        with pytest.raises(AssertionError):
            kind(nn.Linear(1, 1), **wrong)
    model = nn.Linear(1, 1)
    mean, seen = StochasticWeightAverage(model), []
    for value in (1.0, 2.0, 6.0):
        nn.init.constant_(model.weight, value)
        mean.update_parameters(model)
        seen.append(mean.module.weight.item())
    assert seen == pytest.approx([1.0, 1.5, 3.0])


def test_sync_batch_norm_is_turned_back_and_wrappers_are_known() -> None:
    turned = revert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 2, 1), nn.SyncBatchNorm(2)))
    assert turned(torch.randn(2, 1, 3, 3)).shape == (2, 2, 3, 3)
    assert is_model_wrapper(nn.DataParallel(nn.Linear(1, 1))) and not is_model_wrapper(nn.Linear(1, 1))
