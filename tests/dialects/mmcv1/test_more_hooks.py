"""Hooks of mmdet that configs of mmtracking name, and MMClassification's logger for Weights & Biases."""

from __future__ import annotations

from math import cos, exp, pi
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from etude.dialects.mmcv1.live.hooks import detection_hooks
from etude.dialects.mmcv1.live.mmcls import wandb_hook
from etude.events.trackers import outbox
from tests.dialects.mmcv1.toys import Net, noisy_loader
from tests.events.offline import read_wandb

from mmcv.runner import HOOKS, EvalHook, Hook  # isort: skip

TRAIN = [("train", 1)]
assert HOOKS.get("ExpMomentumEMAHook") is detection_hooks.ExpMomentumEMAHook
assert HOOKS.get("MMClsWandbHook") is wandb_hook.MMClsWandbHook


class Counting(nn.Module):
    """One parameter that grows by one each step, and a buffer that counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.register_buffer("seen", torch.zeros(()))

    def train_step(self, data: Any, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
        self.seen += 1
        return {"loss": -self.weight * 10}


def _momenta(kind: str, **settings: Any) -> Any:
    momentum = settings.get("momentum", 0.0002)
    if kind == "ExpMomentumEMAHook":
        return lambda now: (1 - momentum) * exp(-(1 + now) / settings.get("total_iter", 2000)) + momentum
    most, warm = momentum ** settings.get("interval", 1), settings.get("warm_up", 100)
    return lambda now: min(most, (1 + now) / (warm + now))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ExpMomentumEMAHook", {"momentum": 0.01, "total_iter": 10}),
        ("ExpMomentumEMAHook", {"momentum": 0.01, "interval": 3, "skip_buffers": True}),
        ("LinearMomentumEMAHook", {"momentum": 0.2, "interval": 2, "warm_up": 5}),
    ],
)
def test_averages_follow_their_momentum(make_runner: Any, kind: str, settings: Any) -> None:
    runner = make_runner(Counting(), max_epochs=2)
    runner.optimizer = torch.optim.SGD(runner.model.parameters(), lr=0.1)
    custom = [{"type": kind, "priority": 49, **settings}]
    runner.register_training_hooks({"policy": "fixed"}, {}, custom_hooks_config=custom)
    runner.run([[None] * 4], TRAIN)
    momentum, average = _momenta(kind, **settings), 0.0
    for now in range(8):
        if (now + 1) % settings.get("interval", 1) == 0:
            average += (now + 1 - average) * momentum(now)
    assert runner.model.weight.item() == pytest.approx(average)
    assert hasattr(runner.model, "ema_seen") is not settings.get("skip_buffers", False)


def test_the_policy_of_yolox_warms_up_and_ends_flat(make_runner: Any) -> None:
    rates: list[float] = []

    class Watch(Hook):
        def after_train_iter(self, runner: Any) -> None:
            rates.append(runner.optimizer.param_groups[0]["lr"])

    runner = make_runner(Counting(), max_epochs=4)
    policy = {
        "policy": "YOLOX", "by_epoch": False, "warmup": "exp", "warmup_by_epoch": True, "warmup_ratio": 1,
        "warmup_iters": 1, "num_last_epochs": 1, "min_lr_ratio": 0.05,
    }  # fmt: skip
    runner.register_training_hooks(policy, {}, custom_hooks_config=[Watch()])
    runner.run([[None] * 4], TRAIN)
    warm = [0.1 * ((now + 1) / 4) ** 2 for now in range(4)]
    wave = [0.005 + 0.5 * 0.095 * (1 + cos(pi * (now + 1 - 4) / 8)) for now in range(4, 11)]
    assert rates == pytest.approx([*warm, *wave, *[0.005] * 5])


def test_a_loss_that_is_no_number_ends_the_run(make_runner: Any) -> None:
    class Broken(Counting):
        def train_step(self, data: Any, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
            return {"loss": self.weight * float("nan")}

    runner = make_runner(Broken(), max_epochs=1)
    custom = [{"type": "CheckInvalidLossHook", "interval": 2}, {"type": "SyncNormHook"}]
    runner.register_training_hooks({"policy": "fixed"}, {}, custom_hooks_config=custom)
    with pytest.raises(AssertionError, match="NaN"):
        runner.run([[None] * 4], TRAIN)
    assert runner.iter == 1


@pytest.mark.parametrize("iters", [False, True])
def test_mmclassifications_wandb_keeps_checkpoints_with_their_results(
    make_runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, iters: bool
) -> None:
    monkeypatch.setattr(outbox, "OPENING", 300.0)
    length = {"max_iters": 6} if iters else {"max_epochs": 2}
    runner = make_runner(Net(), folder=tmp_path, **length)
    logger = {"type": "MMClsWandbHook", "log_checkpoint": True, "log_checkpoint_metadata": True, "num_eval_images": 0}
    logger["init_kwargs"] = {"mode": "offline", "dir": str(tmp_path), "settings": {"silent": True}}
    interval = 3 if iters else 1
    runner.register_training_hooks(
        {"policy": "fixed"}, {}, {"interval": interval}, {"interval": 2, "hooks": [{"type": "TextLoggerHook"}, logger]}
    )
    runner.register_hook(EvalHook(noisy_loader(), interval=interval, by_epoch=not iters), priority="LOW")
    runner.run([noisy_loader()], TRAIN)
    kept = read_wandb(tmp_path)
    unit, numbers = ("iter", [3, 6]) if iters else ("epoch", [1, 2])
    assert [metadata[unit] for _, _, metadata, _ in kept.artifacts] == numbers
    assert all("acc" in metadata for _, _, metadata, _ in kept.artifacts)
    assert [files for *_, files in kept.artifacts] == [[f"{unit}_{number}.pth"] for number in numbers]
    assert [f"{unit}_{number}" in aliases for number, (_, aliases, _, _) in zip(numbers, kept.artifacts)] == [True] * 2
    assert kept.exit_code == 0
