"""Parts of a job that makes several processes hard: random augmentation, dropout, an uneven last batch, batch norms."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

import etude
from etude.data import Digits


class Shaky(torch.utils.data.Dataset):
    """Digits with noise that each sample draws for itself."""

    def __init__(
        self,
        split: str = "train",
        size: int = 150,
        sleep_at: int = -1,
        noise: float = 0.1,
        apart: bool = False,
        sleepy_rank: int = -1,
    ) -> None:
        if os.environ.get("RANK") == str(sleepy_rank):
            time.sleep(3600)
        self.digits, self.size, self.sleep_at, self.noise = Digits(split), size, sleep_at, noise
        if apart:  # as if a node had another copy of the data
            self.size += int(os.environ["RANK"])

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int):
        if index == self.sleep_at:
            time.sleep(3600)
        image, target = self.digits[index]
        return image.reshape(-1) + self.noise * torch.rand(64), target


class Net(nn.Module):
    """Small, with everything that may differ between ranks."""

    def __init__(self, norm: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.norm = nn.BatchNorm1d(32) if norm else nn.Identity()
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


class Messages(etude.Hook):
    """Writes down how many collectives of either kind each step of rank 0 has begun."""

    KINDS = ("all_reduce", "reduce_scatter_single")
    counts = dict.fromkeys(KINDS, 0)

    def before_train(self, run: etude.Run) -> None:
        for kind in self.KINDS:
            setattr(torch.distributed, kind, self._counted(kind, getattr(torch.distributed, kind)))

    def _counted(self, kind: str, call):
        def counted(*args, **kwargs):
            self.counts[kind] += 1
            return call(*args, **kwargs)

        return counted

    def before_step(self, run: etude.Run) -> None:
        self.counts = dict.fromkeys(self.KINDS, 0)

    def after_step(self, run: etude.Run) -> None:
        if run.world.rank == 0:
            with open("messages.txt", "a") as file:
                print(*self.counts.values(), file=file)


class Seen(etude.Hook):
    """Writes down what each rank has seen, and may raise on one of them."""

    def __init__(self, folder: str = "", raise_at: int = 0, rank: int = 0) -> None:
        self.folder, self.raise_at, self.rank = folder, raise_at, rank

    def after_step(self, run: etude.Run) -> None:
        if run.world.rank == self.rank and run.done == self.raise_at:
            raise ValueError("this rank is tired")
        if self.folder:
            with open(os.path.join(self.folder, f"rank-{run.world.rank}.txt"), "a") as file:
                file.write(f"{run.done}\n")


class Apart(etude.Hook):
    """Calls another collective on each rank."""

    def after_step(self, run: etude.Run) -> None:
        if run.world.rank == 0:
            torch.distributed.all_reduce(torch.zeros(4))
        else:
            torch.distributed.broadcast(torch.zeros(4), src=0)
        torch.distributed.barrier()
