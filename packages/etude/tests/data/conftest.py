"""Datasets that the tests of the loader share. Top-level, so that a worker can be given them."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(elsewhere: None) -> None:
    """Every test of this room."""


class Noisy:
    """Every sample draws from all three generators."""

    def __init__(self, size: int = 20) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, float, float, float]:
        return index, random.random(), float(np.random.rand()), float(torch.rand(()))


class NoisyStream(IterableDataset):
    """Ten numbers and a draw; can say where it stands if ``stateful``."""

    def __init__(self, size: int = 10) -> None:
        self.size, self.position = size, 0

    def __iter__(self):
        while self.position < self.size:
            self.position += 1
            yield self.position - 1, float(torch.rand(()))
        self.position = 0


class StatefulStream(NoisyStream):
    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Broken:
    """Sample ``which`` raises, always or for the first ``times``."""

    def __init__(self, which: int = 7, times: int = 10**9) -> None:
        self.which, self.times = which, times

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        if index == self.which and self.times > 0:
            self.times -= 1
            raise ValueError("torn file")
        return index


class Deadly:
    """Sample 5 kills its process, the first time (told by a file)."""

    def __init__(self, folder: Path, how: str) -> None:
        self.mark, self.how = Path(folder) / "died", how

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[int, float]:
        if index == 5 and not self.mark.exists():
            self.mark.touch()
            if self.how == "hang":
                time.sleep(3600)
            os.kill(os.getpid(), signal.SIGKILL) if self.how == "kill" else os._exit(3)
        return index, float(torch.rand(()))
