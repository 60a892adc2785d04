"""The read-only properties of MMEngine's Runner: names, counters, folders, and loops built on first use."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import Any

from torch import nn

from etude.core.run import Run
from etude.dialects.mmengine.live.loops import BaseLoop


def _reads(attribute: str) -> Any:
    """Return a property that only reads: ``attrgetter`` is faster than a method, and hooks ask several times a step."""
    return property(attrgetter(attribute))


@cache
def _is_loop(kind: type) -> bool:
    """Return whether a loop is built (not a config). Cached per class, because it is asked several times per step."""
    return issubclass(kind, BaseLoop)


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

    experiment_name: str = _reads("_experiment_name")
    model_name: str = _reads("_model_name")
    work_dir: str = _reads("_work_dir")
    log_dir: str = _reads("_log_dir")
    launcher: str = _reads("_launcher")
    distributed: bool = _reads("_distributed")
    rank: int = _reads("_rank")
    world_size: int = _reads("_world_size")
    deterministic: bool = _reads("_deterministic")
    #: When this run started: ``20240131_120000``.
    timestamp: str = _reads("_timestamp")
    seed: int | None = _reads("_seed")
    train_dataloader: Any = _reads("train_loop.dataloader")
    val_dataloader: Any = _reads("val_loop.dataloader")
    test_dataloader: Any = _reads("test_loop.dataloader")
    val_evaluator: Any = _reads("val_loop.evaluator")
    test_evaluator: Any = _reads("test_loop.evaluator")
    #: The number of epochs or iterations between validations, and the first of them that may be validated.
    val_interval: int = _reads("train_loop.val_interval")
    val_begin: int = _reads("train_loop.val_begin")

    @property
    def model(self) -> nn.Module:
        """Return the model, or the wrapper around it in a run of several processes."""
        return self.engine.model

    @model.setter
    def model(self, model: nn.Module) -> None:
        self.engine.model = model

    @property
    def epoch(self) -> int:
        """Return the number of finished epochs."""
        loop: Any = self._train_loop
        return loop.epoch if _is_loop(type(loop)) else 0  # type: ignore[arg-type]

    @property
    def iter(self) -> int:
        """Return the number of finished iterations."""
        loop: Any = self._train_loop
        return loop.iter if _is_loop(type(loop)) else 0  # type: ignore[arg-type]

    @property
    def max_epochs(self) -> int:
        """Return the number of epochs to train. Builds the train loop if that has not happened yet."""
        loop: Any = self.train_loop
        return loop.max_epochs if _is_loop(type(loop)) else 0  # type: ignore[arg-type]

    @property
    def max_iters(self) -> int:
        """Return the number of iterations to train. Builds the train loop if that has not happened yet."""
        loop: Any = self.train_loop
        return loop.max_iters if _is_loop(type(loop)) else 0  # type: ignore[arg-type]

    @property
    def train_loop(self) -> Any:
        """Return the train loop, built on first use."""
        if isinstance(self._train_loop, dict):
            self._train_loop = self.build_train_loop(self._train_loop)  # type: ignore[attr-defined]
        return self._train_loop

    @property
    def val_loop(self) -> Any:
        """Return the validation loop, built on first use."""
        if isinstance(self._val_loop, dict):
            self._val_loop = self.build_val_loop(self._val_loop)  # type: ignore[attr-defined]
        return self._val_loop

    @property
    def test_loop(self) -> Any:
        """Return the test loop, built on first use."""
        if isinstance(self._test_loop, dict):
            self._test_loop = self.build_test_loop(self._test_loop)  # type: ignore[attr-defined]
        return self._test_loop
