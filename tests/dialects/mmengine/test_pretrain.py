"""What MMPretrain adds: an optimizer, and hooks around validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.errors import OutOfScope

from tests.dialects.mmengine import toy  # isort: skip  (serves the names below)
from mmpretrain.engine.hooks import EMAHook, PreciseBNHook
from mmpretrain.engine.optimizers import Adan
from mmpretrain.registry import HOOKS, VISUALIZERS


class Mean(toy.BaseMetric):
    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.extend(data_samples)

    def compute_metrics(self, results: list[float]) -> dict[str, float]:
        return {"acc": sum(results) / len(results)}


@pytest.mark.parametrize("no_prox", [False, True])
def test_adan_follows_its_formula(no_prox: bool) -> None:
    w, lr, wd, (b1, b2, b3), eps = 1.0, 0.1, 0.02, (0.98, 0.92, 0.99), 1e-8
    param = nn.Parameter(torch.tensor([w], dtype=torch.float64))
    optimizer = Adan([param], lr=lr, weight_decay=wd, no_prox=no_prox)
    m = v = n = 0.0
    before = None
    for step in range(1, 6):
        grad = 2 * w + step
        param.grad = torch.tensor([2 * param.item() + step], dtype=torch.float64)
        optimizer.step()
        change = 0.0 if before is None else grad - before
        m, v, before = b1 * m + (1 - b1) * grad, b2 * v + (1 - b2) * change, grad
        n = b3 * n + (1 - b3) * (grad + b2 * change) ** 2
        size = (n / (1 - b3**step)) ** 0.5 + eps
        move = lr * (m / (1 - b1**step) + b2 * v / (1 - b2**step)) / size
        w = w * (1 - lr * wd) - move if no_prox else (w - move) / (1 + lr * wd)
        assert param.item() == pytest.approx(w, rel=1e-12)


def test_adan_clips_the_norm_of_all_gradients() -> None:
    moved = []
    for limit, grad in ((0.5, 3.0), (0.0, 0.5)):
        param = nn.Parameter(torch.zeros(1))
        param.grad = torch.tensor([grad])
        optimizer = Adan([param], max_grad_norm=limit)
        optimizer.step()
        moved.append(optimizer.state[param]["exp_avg"].item())
    assert moved[0] == pytest.approx(moved[1], rel=1e-5)


def test_both_the_average_and_the_trained_weights_are_validated(tmp_path: Path) -> None:
    hook = EMAHook(momentum=0.2, evaluate_on_origin=True)
    runner = toy.make(tmp_path, val=True, val_evaluator=[Mean()], custom_hooks=[hook])
    runner.train()
    scalars = runner.message_hub
    averaged, trained = (scalars.get_scalar(f"val/{name}").current() for name in ("acc", "acc_origin"))
    inputs = torch.arange(4.0).repeat_interleave(2).reshape(4, 2)
    assert trained == pytest.approx(runner.model.fc(inputs).mean().item(), rel=1e-5)
    assert averaged == pytest.approx(hook.ema_model.module.fc(inputs).mean().item(), rel=1e-5)
    assert averaged != trained


def test_exact_statistics_are_those_of_the_data(tmp_path: Path) -> None:
    class Normed(toy.Net):
        def __init__(self) -> None:
            super().__init__()
            self.bn = nn.BatchNorm1d(2)

        def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
            y = self.fc(self.bn(torch.stack(list(inputs))))
            return {"loss": y.pow(2).mean()} if mode == "loss" else y

    runner = toy.make(tmp_path, model=Normed(), custom_hooks=[PreciseBNHook(num_samples=8)])
    runner.train()
    assert runner.model.bn.running_mean.tolist() == [3.5, 3.5]
    assert runner.model.bn.running_var.tolist() == pytest.approx([0.5, 0.5])
    assert runner.model.bn.momentum == 0.1


def test_what_every_config_names_for_pictures_is_there_and_switched_off() -> None:
    HOOKS.build({"type": "VisualizationHook", "enable": False})
    with pytest.raises(OutOfScope, match="runner.visualizer.add_image"):
        HOOKS.build({"type": "VisualizationHook", "enable": True})
    shown = VISUALIZERS.build({"type": "UniversalVisualizer", "name": "of pretrain"})
    with pytest.raises(OutOfScope, match="use add_image"):
        shown.visualize_cls
