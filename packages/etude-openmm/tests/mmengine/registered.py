"""Parts that a config of the tests names; imported by its ``custom_imports``."""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.mmengine import lives, toy  # isort: skip  (serves the names below)
from mmengine.registry import DATASETS, HOOKS, METRICS, MODELS

MODELS.register_module(name="RegisteredNet", module=toy.Net, force=True)
MODELS.register_module(name="RegisteredDropped", module=lives.Dropped, force=True)
DATASETS.register_module(name="RegisteredAugmented", module=lives.Augmented, force=True)
DATASETS.register_module(name="RegisteredNumbers", module=toy.Numbers, force=True)
METRICS.register_module(name="RegisteredScore", module=toy.Score, force=True)


@HOOKS.register_module(force=True)
class Terminate(toy.Hook):
    """Asks its own process to stop, of several each at its own iteration."""

    def __init__(self, at: int | list[int]) -> None:
        self.at = at

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        at = self.at if isinstance(self.at, int) else self.at[runner.rank]
        if runner.iter + 1 == at:
            os.kill(os.getpid(), signal.SIGTERM)


@HOOKS.register_module(force=True)
class NoteSamples(toy.Hook):
    """Writes down the epoch and the number of every sample that its process trains on."""

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        with open(os.path.join(runner.work_dir, "seen.txt"), "a") as file:
            file.write("".join(f"{runner.epoch} {int(sample)}\n" for sample in data_batch["data_samples"]))


@HOOKS.register_module(force=True)
class TerminateValidation(toy.Hook):
    """Asks its own process to stop, in the validation after an iteration; counts the batches that come then."""

    batches = 0

    def __init__(self, at: int) -> None:
        self.at = at

    def after_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if runner.iter == self.at and batch_idx == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        type(self).batches += runner.iter == self.at


@HOOKS.register_module(force=True)
class Stuck(toy.Hook):
    """Asks its own process to stop, and never comes back."""

    def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            signal.pause()
