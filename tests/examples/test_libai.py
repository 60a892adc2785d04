"""The character transformer of ``examples/libai``: it learns, in eager and in graph mode the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import etude
from etude.building.options import Options
from tests.libai.project import forget_loggers

EXAMPLES = Path(__file__).parents[2] / "examples" / "libai"
SMALL = [
    "train.train_iter=12", "train.warmup_ratio=0.1", "train.train_micro_batch_size=4", "train.test_micro_batch_size=4",
    "model.width=16", "model.depth=1", "train.log_period=4", "train.evaluation.eval_period=1000",
    "train.evaluation.eval_iter=4",
]  # fmt: skip


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One thread for so small a model, and nothing left in the process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    sys.modules.pop("char_parts", None)
    forget_loggers()


def bits(folder: Path, *overrides: str) -> float:
    run = etude.train(
        EXAMPLES / "char_transformer.py", [*SMALL, *overrides], options=Options(folder=folder, quiet=True)
    )
    return run.metrics["bits"]


def test_the_transformer_learns(tmp_path: Path) -> None:
    assert bits(tmp_path) < 6.6
    lines = [json.loads(line) for line in (tmp_path / "metrics.json").read_text().splitlines()]
    assert lines[-1]["total_loss"] < lines[0]["total_loss"]


@pytest.mark.thorough  # packages/etude-libai/tests/libai/test_graph.py compares the two modes on a smaller model
def test_eager_and_graph_mode_learn_the_same(tmp_path: Path) -> None:
    eager = bits(tmp_path / "eager")
    graph = bits(
        tmp_path / "graph",
        "graph.enabled=true",
        "graph.train_graph.backend=eager",
        "graph.eval_graph.backend=eager",
    )
    assert graph == pytest.approx(eager, rel=1e-3)
    assert (tmp_path / "graph" / "last_checkpoint").read_text() == "model_final"
