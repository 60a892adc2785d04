"""LoggerHook: writes log lines and gives scalars to the visualizer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.fileio import FileClient, get_file_backend
from mmengine.utils import is_seq_of

from etude_openmm.mmengine import files
from etude_openmm.mmengine.live.hooks.checkpoint_hook import CheckpointHook
from etude_openmm.mmengine.live.hooks.hook import OUTDATED, DataBatch, Hook
from etude_openmm.mmengine.live.hooks.upkeep_hooks import length_of
from etude_openmm.shared.live.divergence import lost_name, way_back
from etude_openmm.shared.logging import log_warning

SUFFIX_TYPE = Sequence[str] | str


class LoggerHook(Hook):
    """Logs a line every ``interval`` iterations of an epoch, and one after each validation and test.

    Tensors are read only when a line is due. ``out_dir`` receives a copy of the run's text files at the end.
    """

    priority = "BELOW_NORMAL"
    _warned = False

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        interval_exp_name: int = 1000,
        out_dir: str | Path | None = None,
        out_suffix: SUFFIX_TYPE = (".json", ".log", ".py", "yaml"),  # MMEngine's default, without a dot before yaml
        keep_local: bool = True,
        file_client_args: dict[str, Any] | None = None,
        log_metric_by_epoch: bool = True,
        backend_args: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(interval, int):
            raise TypeError(f"interval must be an integer, got {interval!r}")
        if interval <= 0:
            raise ValueError(f"interval must be greater than 0, got {interval}")
        for name, flag in (("ignore_last", ignore_last), ("keep_local", keep_local)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be a boolean, got {flag!r}")
        if not isinstance(interval_exp_name, int):
            raise TypeError(f"interval_exp_name must be an integer, got {interval_exp_name!r}")
        if interval_exp_name <= 0:
            raise ValueError(f"interval_exp_name must be greater than 0, got {interval_exp_name}")
        if out_dir is not None and not isinstance(out_dir, str | Path):
            raise TypeError(f"out_dir must be a str or Path object, but got {out_dir!r}")
        if file_client_args is not None and backend_args is not None:
            raise ValueError('"file_client_args" and "backend_args" cannot be set at the same time')
        if file_client_args is not None:
            log_warning(OUTDATED)
        if out_dir is None and file_client_args is not None:
            raise ValueError('file_client_args should be "None" when `out_dir` is notspecified')
        if not isinstance(out_suffix, str) and not is_seq_of(out_suffix, str):
            raise TypeError(f"out_suffix should be a string or a sequence of string, but got {type(out_suffix)}")
        if out_dir is not None:
            self.file_client = FileClient.infer_client(file_client_args, str(out_dir))
            self.file_backend = get_file_backend(str(out_dir), backend_args=backend_args)
        self.interval, self.ignore_last, self.interval_exp_name = interval, ignore_last, interval_exp_name
        self.out_dir, self.out_suffix, self.keep_local = out_dir, out_suffix, keep_local
        self.file_client_args, self.backend_args = file_client_args, backend_args
        self.log_metric_by_epoch = log_metric_by_epoch
        self.json_log_path: str | None = None
        self._measured: tuple[Any, int | None] = (None, None)

    def before_run(self, runner: Any) -> None:
        if self.out_dir is not None:
            self.out_dir = os.path.join(self.out_dir, os.path.basename(runner.work_dir.rstrip(os.sep)))
            runner.logger.info(f"Text logs will be copied to {self.out_dir} after the run.")
        self.json_log_path = f"{runner.timestamp}.json"

    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        length = self._length(runner.train_dataloader, batch_idx)
        at_end = batch_idx + 1 == length
        if at_end or self.every_n_train_iters(runner, self.interval_exp_name):
            runner.logger.info(f"Exp name: {runner.experiment_name}")
        # An epoch that is not longer than the interval would never be logged, so ``ignore_last`` does not hold there.
        closing = at_end and (not self.ignore_last or (length or 0) <= self.interval)
        if closing or self.every_n_inner_iters(batch_idx, self.interval):
            tag, text = runner.log_processor.get_log_after_iter(runner, batch_idx, "train")
            runner.logger.info(text)
            runner.visualizer.add_scalars(tag, step=runner.iter + 1, file_path=self.json_log_path)
            self._warn_once(runner, tag)

    def _warn_once(self, runner: Any, row: dict[str, Any]) -> None:
        """Warn that a loss is not finite, once, at the first log line that shows it."""
        warning = None if self._warned else describe_divergence(runner, row)
        if warning is not None:
            self._warned = True
            runner.logger.warning(warning)

    def _length(self, dataloader: Any, batch_idx: int) -> int | None:
        """Return ``len(dataloader)``, computed once per epoch; None for a dataset without a length."""
        if batch_idx == 0 or self._measured[0] is not dataloader:
            self._measured = (dataloader, length_of(dataloader))
        return self._measured[1]

    def after_val_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        self._log_batch(runner, batch_idx, "val")

    def after_test_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        self._log_batch(runner, batch_idx, "test")

    def _log_batch(self, runner: Any, batch_idx: int, mode: str) -> None:
        if self.every_n_inner_iters(batch_idx, self.interval):
            _, text = runner.log_processor.get_log_after_iter(runner, batch_idx, mode)
            runner.logger.info(text)

    def after_val_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        tag, text = runner.log_processor.get_log_after_epoch(runner, len(runner.val_dataloader), "val")
        runner.logger.info(text)
        built = runner._train_loop is not None and not isinstance(runner._train_loop, dict)
        # As in MMEngine, rows of an iteration loop have step 0 by default, because its epoch stays 0.
        step = (runner.epoch if self.log_metric_by_epoch else runner.iter) if built else 0
        runner.visualizer.add_scalars(tag, step=step, file_path=self.json_log_path)

    def after_test_epoch(self, runner: Any, metrics: dict[str, float] | None = None) -> None:
        tag, text = runner.log_processor.get_log_after_epoch(
            runner, len(runner.test_dataloader), "test", with_non_scalar=True
        )
        runner.logger.info(text)
        files.write_text(os.path.join(runner.log_dir, str(self.json_log_path)), json.dumps(self._process_tags(tag)))

    def after_run(self, runner: Any) -> None:
        runner.visualizer.close()
        if self.out_dir is None:
            return
        for relative in _text_files(runner._log_dir, self.out_suffix):
            source, target = os.path.join(runner._log_dir, relative), os.path.join(self.out_dir, relative)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
            runner.logger.info(f"The file {source} has been uploaded to {target}.")
            if not self.keep_local:
                os.remove(source)
                runner.logger.info(f"{source} was removed due to the `self.keep_local=False`")

    @staticmethod
    def _process_tags(tags: dict[str, Any]) -> dict[str, Any]:
        return {name: _to_python(value) for name, value in tags.items()}


def _to_python(value: Any) -> Any:
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _to_python(item) for key, item in value.items()}
    return [_to_python(item) for item in value] if isinstance(value, list | tuple) else value


def _text_files(folder: str, suffix: SUFFIX_TYPE) -> Iterator[str]:
    endings = (suffix,) if isinstance(suffix, str) else tuple(suffix)
    for where, _, names in os.walk(folder):
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(where, name), folder)


def describe_divergence(runner: Any, row: Mapping[str, Any]) -> str | None:
    """Return the warning for a log line with these values; None while its losses are finite.

    The values are on the CPU already, read for the log line; so is the history that shows where it began.
    """
    name = lost_name(row)
    if name is None:
        return None
    began = _first_non_finite(runner, name)
    return (
        f"{name} is {row[name]}, for the first time at iteration {began}. MMEngine continues to train and saves "
        f"the result. {_way_back(runner, began)}"
    )


def _first_non_finite(runner: Any, name: str) -> int:
    """Return the iteration of the first value that is not finite, or the current one without a history."""
    now = int(runner.iter) + 1
    history = runner.message_hub.log_scalars.get(name if name.startswith("train/") else f"train/{name}")
    if history is None or np.isfinite(history.data[0]).all():
        return now
    first = int(np.argmin(np.isfinite(history.data[0])))
    return max(1, now - (len(history) - 1 - first))


def _way_back(runner: Any, began: int) -> str:
    hook = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
    lengths, most = {"iter_{}.pth": 1}, 0 if hook is None else hook.max_keep_ckpts
    if hook is not None and "{}" in getattr(hook, "filename_tmpl", ""):
        lengths[hook.filename_tmpl] = len(runner.train_dataloader) if hook.by_epoch else 1
    folders = [runner.work_dir, getattr(hook, "out_dir", None) or runner.work_dir]
    return way_back(folders, lengths, began=began, most=most, flag="--resume")
