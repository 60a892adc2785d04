"""The small models, data and metrics that the recorded runs used, and a runner made of them."""

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

__all__ = ["Hook", "Runner"]

_names = itertools.count()


class ToyData(Dataset):
    def __init__(self, n: int = 8, metainfo: dict[str, Any] | None = None) -> None:
        self.n = n
        if metainfo is not None:
            self.metainfo = metainfo

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": torch.tensor([index % 3 + 1.0]), "idx": index}


class ToyNet(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.lin = _linear(1.0, 0.5)

    def out(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x)

    def forward(self, inputs: Any, idx: Any = None, mode: str = "tensor") -> Any:
        y = self.out(torch.stack(list(inputs)))
        if mode == "loss":
            return {"loss": (y**2).mean()}
        return [{"y": value} for value in y]


class TwoPart(ToyNet):
    def __init__(self) -> None:
        super().__init__()
        self.head = _linear(0.3, -0.1)

    def out(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lin(x))


class EmaNet(BaseModel):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.register_buffer("stat", torch.tensor([0.0]))
        self.register_buffer("count", torch.tensor(0))
        self.seen_by_val: list[list[float]] = []

    def forward(self, inputs: Any, idx: Any = None, mode: str = "tensor") -> Any:
        x = torch.stack(list(inputs))
        if mode != "loss":
            self.seen_by_val.append([*self.w.tolist(), self.stat.item()])
            return [{"y": value} for value in x]
        self.stat = 0.5 * self.stat + 0.5 * x.mean()
        self.count += 1
        return {"loss": ((self.w.sum() * x) ** 2).mean() + (self.w**2).sum()}


class RegData(Dataset):
    def __init__(self, x: list[list[float]], t: list[float]) -> None:
        self.x, self.t = x, t

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"inputs": torch.tensor(self.x[index]), "target": torch.tensor(self.t[index])}


class RegNet(BaseModel):
    def __init__(self, w: list[float], b: float) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 1)
        with torch.no_grad():
            self.lin.weight.copy_(torch.tensor([w]))
            self.lin.bias.fill_(b)

    def forward(self, inputs: Any, target: Any = None, mode: str = "tensor") -> Any:
        y = self.lin(torch.stack(list(inputs)))[:, 0]
        return {"loss": ((y - torch.stack(list(target))) ** 2).mean()}


class ScriptMetric(BaseMetric):
    """Evaluation i returns entry min(i, last) of the script."""

    def __init__(self, script: list[dict[str, Any]], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        self.script, self.count = script, 0

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results.append(0)

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        entry = self.script[min(self.count, len(self.script) - 1)]
        self.count += 1
        return dict(entry)


def _linear(weight: float, bias: float) -> nn.Linear:
    made = nn.Linear(1, 1)
    nn.init.constant_(made.weight, weight)
    nn.init.constant_(made.bias, bias)
    return made


def loader(dataset: Dataset, batch_size: int = 2, *, shuffle: bool = False) -> dict[str, Any]:
    """A dataloader's config."""
    sampler = {"type": "DefaultSampler", "shuffle": shuffle}
    return {"batch_size": batch_size, "num_workers": 0, "sampler": sampler, "dataset": dataset}


def train_cfg(given: dict[str, Any]) -> dict[str, Any]:
    """A recorded train_cfg with its tuples back."""
    made = dict(given)
    if made.get("dynamic_intervals"):
        made["dynamic_intervals"] = [tuple(item) for item in made["dynamic_intervals"]]
    return made


def validation(script: list[dict[str, Any]], *, batches: int = 1, prefix: str | None = None) -> dict[str, Any]:
    """The three arguments of a validation whose results are scripted."""
    return {
        "val_dataloader": loader(ToyData(2 * batches)),
        "val_cfg": {},
        "val_evaluator": [ScriptMetric(script, prefix=prefix)],
    }


def runner(folder: Path, **arguments: Any) -> Runner:
    """A runner with a name of its own; ``checkpoint`` is off unless default_hooks say otherwise."""
    defaults: dict[str, Any] = {
        "default_hooks": {"checkpoint": None},
        "randomness": {"seed": 0},
        "log_level": "ERROR",
        "experiment_name": f"toy{next(_names)}",
    }
    return Runner(work_dir=str(folder), **{**defaults, **arguments})
