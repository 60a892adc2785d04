"""A small runner for tests of the engine half."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from etude.dialects import imports

imports.install()

from mmengine.evaluator import BaseMetric  # noqa: E402
from mmengine.hooks import Hook  # noqa: E402
from mmengine.model import BaseModel  # noqa: E402
from mmengine.runner import Runner  # noqa: E402

__all__ = ["BaseMetric", "Hook", "Net", "Numbers", "Score", "arguments", "loader", "make"]

_names = itertools.count()


class Numbers(Dataset):
    METAINFO = {"classes": ("a", "b")}
    metainfo = METAINFO

    def __init__(self, length: int = 8) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": torch.full((2,), float(index)), "data_samples": index}


class Net(BaseModel):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        torch.manual_seed(0)
        self.fc = nn.Linear(2, 1)
        self.batches: list[list[int]] = []

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        y = self.fc(torch.stack(list(inputs)))
        if mode == "loss":
            self.batches.append([int(i) for i in data_samples])
            return {"loss": (0.01 * y).pow(2).mean()}
        return [float(value) for value in y] if mode == "predict" else y


class Score(BaseMetric):
    """Returns its list of values one after the other."""

    def __init__(self, values: tuple[float, ...] = (0.5,), prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        self.values, self.count = values, 0

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(len(data_samples))

    def compute_metrics(self, results: list[int]) -> dict[str, float]:
        value = self.values[min(self.count, len(self.values) - 1)]
        self.count += 1
        return {"acc": value}


def loader(length: int = 8, **options: Any) -> dict[str, Any]:
    sampler = {"type": "DefaultSampler", "shuffle": options.pop("shuffle", False)}
    return {"batch_size": 2, "num_workers": 0, "sampler": sampler, "dataset": Numbers(length), **options}


def arguments(folder: Path, *, val: bool = False, test: bool = False, **changed: Any) -> dict[str, Any]:
    """What a runner is made of: 4 iterations an epoch, 2 epochs, SGD."""
    given: dict[str, Any] = {
        "model": Net(),
        "work_dir": str(folder),
        "train_dataloader": loader(),
        "train_cfg": {"by_epoch": True, "max_epochs": 2},
        "optim_wrapper": {"optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}},
        "randomness": {"seed": 0},
        "log_level": "ERROR",
        "experiment_name": f"test{next(_names)}",
    }
    if val:
        given |= {"val_dataloader": loader(4), "val_cfg": {}, "val_evaluator": [Score()]}
    if test:
        given |= {"test_dataloader": loader(4), "test_cfg": {}, "test_evaluator": [Score()]}
    return given | changed


def make(folder: Path, **changed: Any) -> Runner:
    return Runner(**arguments(folder, **changed))
