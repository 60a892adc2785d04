"""A dataset and a net that draw random numbers in every way that training does."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset[Any]):
    """Samples with noise from all three generators."""

    def __init__(self, size: int = 22) -> None:
        self.size = size
        self.evaluations = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.randn(4) * 0.1 + random.random() * 0.1 + float(np.random.rand()) * 0.1
        return {"x": torch.arange(4) / 4 + index / self.size + noise, "y": torch.tensor([index % 3 - 1.0])}

    def evaluate(self, results: Any, logger: Any = None, **kwargs: Any) -> dict[str, float]:
        self.evaluations += 1
        return {"acc": float(torch.rand(()))}


class Net(nn.Module):
    """Dropout and BatchNorm between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.fc1, self.bn, self.drop, self.fc2 = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 1)

    def forward(self, x: Any, y: Any = None, return_loss: bool = True) -> Any:
        out = self.fc2(self.drop(torch.relu(self.bn(self.fc1(x)))))
        return ((out - y) ** 2).mean() if return_loss else list(out)

    def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        loss = self(**data)
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data["x"])}

    def val_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        return self.train_step(data, optimizer)


def noisy_loader(workers: int = 0) -> DataLoader[Any]:
    return DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers, worker_init_fn=_follow)


def _follow(worker: int) -> None:
    """Python's and numpy's generators of a worker after torch's."""
    random.seed(torch.initial_seed())
    np.random.seed(torch.initial_seed() % 2**32)


def weights(runner: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in runner.model.state_dict().items()}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different
