from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.checkpoint.store import Store


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(elsewhere: None) -> None:
    """Every test of this room."""


def small_state(number: float = 1.0) -> dict[str, Any]:
    value = float(number)
    model = {"w": torch.full((4, 3), value), "b": torch.zeros(3)}
    moments = {0: {"step": torch.tensor(3.0), "exp_avg": torch.full((4, 3), value / 2)}}
    return {
        "model": model,
        "optimizer": {"state": moments, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1]}]},
        "counters": {"step": int(value), "epoch": 0},
    }


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, lines: list[str]) -> Store:
    return Store(tmp_path / "checkpoints", say=lines.append)


@pytest.fixture
def save() -> Callable[..., str]:
    """Save a small state of a step and wait for it; returns the path."""

    def _save(store: Store, step: int, **options: Any) -> str:
        store.save(small_state(step), step=step, **options)
        store.wait()
        (outcome,) = store.poll()
        return outcome.path

    return _save
