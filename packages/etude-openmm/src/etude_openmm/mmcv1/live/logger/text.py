"""TextLoggerHook: writes log lines, and the same values as JSON lines."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from etude.errors import printable
from etude_openmm.mmcv1.live.hooks.hook import HOOKS
from etude_openmm.mmcv1.live.logger.base import LoggerHook
from etude_openmm.shared.live.divergence import lost_name, way_back

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

#: Values that the text line shows in a special form, or not at all.
_SHOWN_APART = frozenset(("mode", "Epoch", "iter", "lr", "time", "data_time", "memory", "epoch"))


@HOOKS.register_module()
class TextLoggerHook(LoggerHook):
    """Logs ``Epoch [1][50/1000]  lr: …, eta: …``, and writes a record to ``<work_dir>/<timestamp>.log.json``."""

    _warned = False

    def __init__(
        self,
        # As in mmcv, by_epoch comes first here and last in the base class.
        by_epoch: bool = True,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        interval_exp_name: int = 1000,
        out_dir: str | None = None,
        out_suffix: str | tuple[str, ...] = (".log.json", ".log", ".py"),
        keep_local: bool = True,
        file_client_args: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.time_sec_tot = 0.0
        self.interval_exp_name = interval_exp_name
        if out_dir is None and file_client_args is not None:
            raise ValueError("file_client_args needs an out_dir to write to")
        self.out_dir, self.out_suffix, self.keep_local = out_dir, out_suffix, keep_local
        self.file_client_args = file_client_args

    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        if runner.work_dir is None:
            raise AssertionError("TextLoggerHook writes into the work_dir, and the runner has none")
        if self.out_dir is not None:
            self.out_dir = os.path.join(self.out_dir, os.path.basename(runner.work_dir.rstrip(os.sep)))
            runner.logger.info(
                f"Text logs will be saved to {self.out_dir} by HardDiskBackend after the training process."
            )
        self.start_iter = runner.iter
        self.json_log_path = os.path.join(runner.work_dir, f"{runner.timestamp}.log.json")
        if runner.meta is not None:
            self._dump_log(runner.meta, runner)

    def log(self, runner: BaseRunner) -> dict[str, Any]:
        output = runner.log_buffer.output
        if "eval_iter_num" in output:
            iteration = output.pop("eval_iter_num")
        else:
            iteration = self.get_iter(runner, inner_iter=True)
        record: dict[str, Any] = {"mode": self.get_mode(runner), "epoch": self.get_epoch(runner), "iter": iteration}
        rates = runner.current_lr()
        record["lr"] = {name: rate[0] for name, rate in rates.items()} if isinstance(rates, dict) else rates[0]
        if "time" in output and torch.cuda.is_available():
            record["memory"] = self._get_max_memory(runner)
        record |= output
        self._log_info(record, runner)
        self._dump_log(record, runner)
        if record["mode"] == "train" and not self._warned:
            self._warn_of_loss(record, runner)
        return record

    def _warn_of_loss(self, record: dict[str, Any], runner: BaseRunner) -> None:
        """Warn once that a loss is not finite, and name the checkpoint to return to.

        mmcv continues to train, and newer checkpoints replace the good ones.
        """
        name = lost_name(record)
        if name is None:
            return
        self._warned = True
        now, lengths = runner.iter + 1, {"iter_{}.pth": 1}
        if self.by_epoch:
            lengths["epoch_{}.pth"] = len(runner.data_loader)
        began = max(1, now - self.interval + 1)
        back = way_back([str(runner.work_dir)], lengths, began=began, most=0, flag="--resume-from")
        runner.logger.warning(
            f"{name} is {record[name]} at iteration {now} or shortly before. mmcv continues to train and saves "
            f"the result; the hook CheckInvalidLossHook would end the run. {back}"
        )

    def after_run(self, runner: BaseRunner) -> None:
        if self.out_dir is None or runner.rank != 0:
            return
        assert runner.work_dir is not None
        os.makedirs(self.out_dir, exist_ok=True)
        for name in sorted(os.listdir(runner.work_dir)):
            if name.endswith(self.out_suffix):
                source = os.path.join(runner.work_dir, name)
                shutil.copyfile(source, os.path.join(self.out_dir, name))
                if not self.keep_local:
                    os.remove(source)

    def _get_max_memory(self, runner: BaseRunner) -> int:
        return int(torch.cuda.max_memory_allocated() / (1024 * 1024))

    def _log_info(self, log_dict: dict[str, Any], runner: BaseRunner) -> None:
        if runner.meta is not None and "exp_name" in runner.meta:
            at_end = self.by_epoch and self.end_of_epoch(runner)
            if self.every_n_iters(runner, self.interval_exp_name) or at_end:
                runner.logger.info(f"Exp name: {runner.meta['exp_name']}")
        head = self._train_head(log_dict, runner) if log_dict["mode"] == "train" else self._val_head(log_dict)
        items = [
            f"{printable(str(name))}: {value:.4f}" if isinstance(value, float) else f"{name}: {_on_one_line(value)}"
            for name, value in log_dict.items()
            if name not in _SHOWN_APART
        ]
        runner.logger.info(head + ", ".join(items))

    def _val_head(self, log_dict: dict[str, Any]) -> str:
        if self.by_epoch:
            return f"Epoch({log_dict['mode']}) [{log_dict['epoch']}][{log_dict['iter']}]\t"
        return f"Iter({log_dict['mode']}) [{log_dict['iter']}]\t"

    def _train_head(self, log_dict: dict[str, Any], runner: BaseRunner) -> str:
        if self.by_epoch:
            head = f"Epoch [{log_dict['epoch']}][{log_dict['iter']}/{len(runner.data_loader)}]\t"
        else:
            head = f"Iter [{log_dict['iter']}/{runner.max_iters}]\t"
        head += f"{_shown_rate(log_dict['lr'])}, "
        if "time" in log_dict:
            head += f"eta: {self._eta(log_dict['time'], runner)}, "
            head += f"time: {log_dict['time']:.3f}, "
            if "data_time" in log_dict:  # missing after an evaluation in this iteration, which clears the buffer
                head += f"data_time: {log_dict['data_time']:.3f}, "
            if "memory" in log_dict:
                head += f"memory: {log_dict['memory']}, "
        return head

    def _eta(self, seconds: float, runner: BaseRunner) -> str:
        # As in mmcv, the mean of the last ``interval`` iterations stands for all of them.
        self.time_sec_tot += seconds * self.interval
        average = self.time_sec_tot / max(1, runner.iter - self.start_iter + 1)  # 0 if a resume finishes a stage
        assert runner.max_iters is not None
        return str(datetime.timedelta(seconds=int(average * (runner.max_iters - runner.iter - 1))))

    def _dump_log(self, log_dict: dict[str, Any], runner: BaseRunner) -> None:
        if runner.rank != 0:
            return
        record = OrderedDict((key, self._round_float(value)) for key, value in log_dict.items())
        line = json.dumps(record, default=_plain) + "\n"
        with open(self.json_log_path, "ab", buffering=0) as file:
            file.write(line.encode())

    def _round_float(self, items: Any) -> Any:
        if isinstance(items, list):
            return [self._round_float(item) for item in items]
        # As in mmcv, dicts are not rounded, nor is numpy's float32, which is no Python float.
        return round(items, 5) if isinstance(items, float) else items


def _shown_rate(rate: Any) -> str:
    if isinstance(rate, dict):
        return " ".join(f"lr_{name}: {value:.3e}" for name, value in rate.items())
    return f"lr: {rate:.3e}"


def _on_one_line(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """Convert a value that JSON cannot write."""
    if isinstance(value, np.ndarray | np.generic | torch.Tensor):
        return value.tolist()
    return list(value) if isinstance(value, Iterable) else str(value)
