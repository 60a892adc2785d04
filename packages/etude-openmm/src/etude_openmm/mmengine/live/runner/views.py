"""The read-only properties of MMEngine's Runner: names, counters, folders, and loops built on first use."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn

from etude.core.run import Run
from etude.dialects.properties import leads_to, reads
from etude_openmm.mmengine.live.loops import BaseLoop


@cache
def _is_loop(kind: type) -> bool:
    """Return whether a loop is built (not a config). Cached per class, because it is asked several times per step."""
    return issubclass(kind, BaseLoop)


def _counts(loop: str, counter: str) -> Any:
    """Return a property with a counter of a loop; 0 while there is none."""

    def read(self: Views) -> int:
        found: Any = getattr(self, loop)
        return getattr(found, counter) if _is_loop(type(found)) else 0  # type: ignore[arg-type]

    return property(read)


def _loop(name: str) -> Any:
    """Return a property with a loop, which is built from its config when it is first read."""

    def read(self: Views) -> Any:
        found = getattr(self, f"_{name}")
        if isinstance(found, dict):
            found = getattr(self, f"build_{name}")(found)
            setattr(self, f"_{name}", found)
        return found

    return property(read)


class Views:
    """The properties of a runner. Counters are 0 while there is no train loop."""

    cfg: Any
    logger: Any
    message_hub: Any
    visualizer: Any
    optim_wrapper: Any
    param_schedulers: Any
    engine: Run
    _train_loop: Any
    _val_loop: Any
    _test_loop: Any

    experiment_name: str = reads("_experiment_name")
    model_name: str = reads("_model_name")
    work_dir: str = reads("_work_dir")
    log_dir: str = reads("_log_dir")
    launcher: str = reads("_launcher")
    distributed: bool = reads("_distributed")
    rank: int = reads("_rank")
    world_size: int = reads("_world_size")
    deterministic: bool = reads("_deterministic")
    #: When this run started: ``20240131_120000``.
    timestamp: str = reads("_timestamp")
    seed: int | None = reads("_seed")
    train_dataloader: Any = reads("train_loop.dataloader")
    val_dataloader: Any = reads("val_loop.dataloader")
    test_dataloader: Any = reads("test_loop.dataloader")
    val_evaluator: Any = reads("val_loop.evaluator")
    test_evaluator: Any = reads("test_loop.evaluator")
    #: The number of epochs or iterations between validations, and the first of them that may be validated.
    val_interval: int = reads("train_loop.val_interval")
    val_begin: int = reads("train_loop.val_begin")
    #: The model, or the wrapper around it in a run of several processes.
    model: nn.Module = leads_to("engine.model")
    #: The numbers of finished epochs and iterations.
    epoch: int = _counts("_train_loop", "epoch")
    iter: int = _counts("_train_loop", "iter")
    #: The numbers of epochs and iterations to train. They build the train loop if that has not happened yet.
    max_epochs: int = _counts("train_loop", "max_epochs")
    max_iters: int = _counts("train_loop", "max_iters")
    #: The loops, built on first use.
    train_loop: Any = _loop("train_loop")
    val_loop: Any = _loop("val_loop")
    test_loop: Any = _loop("test_loop")
