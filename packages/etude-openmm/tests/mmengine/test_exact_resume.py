"""A run that was killed anywhere and resumed ends in the same bits as one that was not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.mmengine import toy


class Killed(RuntimeError):
    """Stands for a process that ends."""


class Kill(toy.Hook):
    priority = "LOWEST"

    def __init__(self, at: int | None = None, point: str = "after_train_iter") -> None:
        self.at, self.point = at, point

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if self.point == "after_train_iter" and runner.iter + 1 == self.at:
            raise Killed

    def after_val(self, runner: Any) -> None:
        if self.point == "after_val" and runner.iter == self.at:
            raise Killed


class Augmented(toy.Numbers):
    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.rand(2) + random.random() + np.random.rand()
        return {"inputs": torch.full((2,), float(index)) + noise, "data_samples": index}


class Dropped(toy.Net):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.bn = nn.Dropout(0.5), nn.BatchNorm1d(2)

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        torch.rand(3)
        y = self.fc(self.drop(self.bn(torch.stack(list(inputs)))))
        return {"loss": y.pow(2).mean()} if mode == "loss" else [float(value.detach()) for value in y]


def runner(folder: Path, *, by_epoch: bool, workers: int = 0, kill: Kill | None = None, **more: Any) -> Any:
    loop = {"by_epoch": True, "max_epochs": 4} if by_epoch else {"by_epoch": False, "max_iters": 15, "val_interval": 3}
    return toy.make(
        folder,
        val=True,
        model=Dropped(),
        train_dataloader=toy.loader(shuffle=True, num_workers=workers) | {"dataset": Augmented()},
        train_cfg=loop,
        optim_wrapper={"optimizer": {"type": "AdamW", "lr": 0.1}, "clip_grad": {"max_norm": 1.0}},
        param_scheduler={"type": "CosineAnnealingLR", "by_epoch": False},
        custom_hooks=[{"type": "EMAHook", "momentum": 0.2}, kill or Kill()],
        **more,
    )


def state(made: Any) -> list[torch.Tensor]:
    ema = next(hook for hook in made.hooks if type(hook).__name__ == "EMAHook").ema_model
    return [*made.model.state_dict().values(), *ema.state_dict().values()]


def checkpoint(interval: int, *, by_epoch: bool) -> dict[str, Any]:
    return {"checkpoint": {"type": "CheckpointHook", "interval": interval, "by_epoch": by_epoch}}


@pytest.mark.parametrize(
    ("by_epoch", "saves", "kill"),
    [
        (True, (1, True), Kill(at=9)),
        (True, (1, True), Kill(at=8, point="after_val")),
        (True, (3, False), Kill(at=11)),
        (True, (4, False), Kill(at=10)),
        (False, (4, False), Kill(at=7)),
        (False, (3, False), Kill(at=9, point="after_val")),
        (False, (8, False), Kill(at=14)),
    ],
)
def test_the_same_bits_after_any_interruption(
    by_epoch: bool, saves: tuple[int, bool], kill: Kill, tmp_path: Path
) -> None:
    hooks = checkpoint(saves[0], by_epoch=saves[1])
    whole = runner(tmp_path / "whole", by_epoch=by_epoch, default_hooks=hooks)
    whole.train()
    with pytest.raises(Killed):
        runner(tmp_path / "cut", by_epoch=by_epoch, default_hooks=hooks, kill=kill).train()
    torch.manual_seed(99)
    rest = runner(tmp_path / "cut", by_epoch=by_epoch, default_hooks=hooks, resume=True)
    rest.train()
    assert (rest.epoch, rest.iter) == (whole.epoch, whole.iter)
    for one, other in zip(state(rest), state(whole), strict=True):
        assert torch.equal(one, other)


def test_the_same_bits_with_workers_from_the_end_of_an_epoch(tmp_path: Path) -> None:
    hooks = checkpoint(1, by_epoch=True)
    whole = runner(tmp_path / "whole", by_epoch=True, workers=2, default_hooks=hooks)
    whole.train()
    with pytest.raises(Killed):
        runner(tmp_path / "cut", by_epoch=True, workers=2, default_hooks=hooks, kill=Kill(at=10)).train()
    rest = runner(tmp_path / "cut", by_epoch=True, workers=2, default_hooks=hooks, resume=True)
    rest.train()
    for one, other in zip(state(rest), state(whole), strict=True):
        assert torch.equal(one, other)


class Arrays(toy.Hook):
    """Keeps arrays in both ways that a hook has."""

    def __init__(self) -> None:
        self.own, self.found = np.arange(3, dtype=np.float32), {}

    def before_save_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["mine"] = {"table": np.eye(2)[:, ::-1], "best": np.float64(0.5), "tensor": torch.ones(2)}

    def after_load_checkpoint(self, runner: Any, checkpoint: dict[str, Any]) -> None:
        self.found = checkpoint["mine"]

    def state_dict(self) -> dict[str, Any]:
        return {"own": self.own + 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.own = state["own"]


def test_arrays_that_a_hook_saves_come_back_as_arrays(tmp_path: Path) -> None:
    toy.make(tmp_path, custom_hooks=[Arrays()]).train()
    hook = Arrays()
    toy.make(tmp_path, custom_hooks=[hook], resume=True, train_cfg={"by_epoch": True, "max_epochs": 3}).train()
    assert isinstance(hook.found["table"], np.ndarray) and (hook.found["table"] == np.eye(2)[:, ::-1]).all()
    assert hook.found["best"] == 0.5 and isinstance(hook.found["tensor"], torch.Tensor)
    assert isinstance(hook.own, np.ndarray) and hook.own.dtype == np.float32 and hook.own.tolist() == [1, 2, 3]


def test_without_arrays_of_hooks_torch_reads_a_file_as_weights(tmp_path: Path) -> None:
    class Painted(toy.Numbers):
        metainfo = {"palette": np.zeros((2, 3))}

    toy.make(tmp_path, train_dataloader=toy.loader() | {"dataset": Painted()}).train()
    assert torch.load(tmp_path / "epoch_2.pth", weights_only=True)["meta"]["iter"] == 8
