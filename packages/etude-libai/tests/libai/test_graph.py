"""Graph mode is ``torch.compile``: the same results as eager mode, and words where it cannot be."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from etude.errors import ConfigError
from etude_libai.live.oneflow.graph import set_activation_checkpoint

FAST = ("graph.enabled=true", "graph.train_graph.backend=aot_eager", "graph.eval_graph.backend=aot_eager")


def trained(trainer: Any) -> dict[str, torch.Tensor]:
    trainer.train()
    return dict(trainer.model.state_dict())


def test_graph_and_eager_mode_end_the_same(trainer_of: Callable[..., Any]) -> None:
    eager = trained(trainer_of("train.train_iter=6", "train.output_dir=eager"))
    graph = trained(trainer_of("train.train_iter=6", "train.output_dir=graph", *FAST))
    for name, value in eager.items():
        torch.testing.assert_close(graph[name], value)


def test_an_iteration_of_graph_mode_is_a_whole_batch(trainer_of: Callable[..., Any]) -> None:
    options = ("train.num_accumulation_steps=2", "train.train_iter=3", "train.scheduler.warmup_factor=1.0")
    trainer = trainer_of(
        *options, "graph.enabled=true", "graph.train_graph.backend=eager", "graph.eval_graph.backend=eager"
    )
    assert (trainer.max_iter, trainer.global_batch_size) == (3, 8)
    updates = []
    step = trainer.optimizer.step
    trainer.optimizer.step = lambda *args: (updates.append(1), step(*args))[1]
    trainer.train()
    assert len(updates) == 3
    assert trainer.storage.samples == 24


def test_no_compiler_is_told_in_words(trainer_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match="no C\\+\\+ compiler.*graph.enabled=False"):
        trainer_of("graph.enabled=true")


def test_a_scalar_can_be_put_from_inside_a_compiled_model() -> None:
    from libai.utils.events import EventStorage, get_event_storage

    class Telling(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            get_event_storage().put_scalar("mean", y.mean())
            return y * 2

    model = torch.compile(Telling(2, 2), backend="eager")
    with EventStorage(0) as storage:
        for _ in range(3):
            model(torch.ones(1, 2))
        assert len(storage.history("mean").values()) == 3


@pytest.mark.parametrize("tells", [False, True])
def test_the_model_is_compiled_once(config: Path, trainer_of: Callable[..., Any], tells: bool) -> None:
    """A scalar that is put cuts the graph in two; nothing is compiled again from iteration to iteration."""
    told = "        get_event_storage().put_scalar('mean', predicted.mean())\n" if tells else ""
    parts = (
        Path("line_parts.py").read_text().replace("        if not self.training", f"{told}        if not self.training")
    )
    Path("line_parts.py").write_text(f"from libai.utils.events import get_event_storage\n{parts}")
    torch._dynamo.reset()
    counters.clear()
    trainer = trainer_of("train.train_iter=6", "train.evaluation.enabled=false", "model.dropout=0.3", *FAST)
    trainer.train()
    assert counters["stats"]["unique_graphs"] == 1 + tells
    assert sum(counters["graph_break"].values()) == int(tells)
    assert not tells or len(trainer.storage.history("mean").values()) == 6


@pytest.mark.thorough  # inductor compiles C++ for half a minute
def test_the_compiler_itself_ends_the_same(trainer_of: Callable[..., Any]) -> None:
    """With inductor, the default backend, also where the model draws random numbers; evaluation stays out, so that only
    one graph is compiled."""
    options = ("train.train_iter=3", "train.evaluation.enabled=false", "model.dropout=0.5")
    eager = trained(trainer_of(*options, "train.output_dir=eager"))
    graph = trained(trainer_of(*options, "train.output_dir=graph", "graph.enabled=true"))
    for name, value in eager.items():
        torch.testing.assert_close(graph[name], value)


def test_layers_of_libai_are_recomputed_if_the_model_has_no_rule_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class TransformerLayer(torch.nn.Linear):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            type(self).calls += 1
            return super().forward(x)

    layers = types.ModuleType("libai.layers")
    layers.TransformerLayer = TransformerLayer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "libai.layers", layers)
    model = torch.nn.Sequential(TransformerLayer(2, 2), torch.nn.Tanh(), TransformerLayer(2, 1))
    set_activation_checkpoint(model)
    model(torch.ones(1, 2)).sum().backward()
    assert TransformerLayer.calls == 4
