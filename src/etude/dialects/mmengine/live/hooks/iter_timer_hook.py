"""How long data and iterations take, and when the run will be over."""

from __future__ import annotations

import time
from typing import Any

from etude.dialects.mmengine.live.hooks.hook import DataBatch, Hook


class IterTimerHook(Hook):
    """Scalars ``<mode>/data_time`` and ``<mode>/time``, and the info ``eta`` in seconds."""

    priority = "NORMAL"

    def __init__(self) -> None:
        self.time_sec_tot = 0.0
        self.time_sec_test_val = 0.0
        self.start_iter = 0
        self.t = time.time()

    def before_train(self, runner: Any) -> None:
        self.start_iter = runner.iter
        self.time_sec_tot = 0.0

    def _before_epoch(self, runner: Any, mode: str = "train") -> None:
        self.t = time.time()

    def _after_epoch(self, runner: Any, mode: str = "train") -> None:
        self.time_sec_test_val = 0.0

    def _before_iter(self, runner: Any, batch_idx: int, data_batch: DataBatch = None, mode: str = "train") -> None:
        runner.message_hub.update_scalar(f"{mode}/data_time", time.time() - self.t)

    def _after_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Any = None, mode: str = "train"
    ) -> None:
        now = time.time()
        spent, self.t = now - self.t, now
        hub = runner.message_hub
        hub.update_scalar(f"{mode}/time", spent)
        if mode == "train":
            done = runner.iter + 1
            self.time_sec_tot += spent
            eta = self.time_sec_tot / (done - self.start_iter) * (runner.max_iters - done)
        else:
            loader = runner.val_dataloader if mode == "val" else runner.test_dataloader
            self.time_sec_test_val += spent
            eta = self.time_sec_test_val / (batch_idx + 1) * (len(loader) - batch_idx - 1)
        hub.update_info("eta", eta)
