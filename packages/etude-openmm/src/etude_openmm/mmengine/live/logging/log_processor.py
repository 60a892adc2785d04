"""MMEngine's LogProcessor: makes log lines, and rows for the visualizer, from the scalars of the message hub."""

from __future__ import annotations

import copy
import datetime
import re
from collections import OrderedDict
from itertools import chain
from typing import Any

import numpy as np
import torch

from etude_openmm.mmengine.live.device import get_max_cuda_memory
from etude_openmm.shared.live.processes import is_distributed
from etude_openmm.shared.registries.root import LOG_PROCESSORS


@LOG_PROCESSORS.register_module()
class LogProcessor:
    """Selects and smooths the scalars of a log line.

    A scalar whose name matches ``mean_pattern`` is shown as the mean of its last ``window_size`` entries, others as the
    newest value. ``custom_cfg`` entries add or replace items: ``data_src``, ``method_name``, ``window_size`` (a
    number, ``'epoch'`` or ``'global'``), ``log_name``.
    """

    def __init__(
        self,
        window_size: int = 10,
        by_epoch: bool = True,
        custom_cfg: list[dict[str, Any]] | None = None,
        num_digits: int = 4,
        log_with_hierarchy: bool = False,
        mean_pattern: str = r".*(loss|time|data_time|grad_norm).*",
    ) -> None:
        self.window_size, self.by_epoch = window_size, by_epoch
        self.custom_cfg = custom_cfg if custom_cfg else []
        self.num_digits, self.log_with_hierarchy = num_digits, log_with_hierarchy
        self.mean_pattern = re.compile(mean_pattern)
        self._check_custom_cfg()

    def _check_custom_cfg(self) -> None:
        names: set[str] = set()
        for entry in self.custom_cfg:
            assert "data_src" in entry, f"custom_cfg entries need a `data_src`, but got {entry}"
            name = entry.get("log_name", entry["data_src"])
            assert name not in names, f"Found duplicate log_name for {name}: give one of them another log_name"
            names.add(name)
            assert self.by_epoch or entry.get("window_size") != "epoch", (
                "window_size cannot be epoch if LoggerHook.by_epoch is False"
            )

    # -- after an iteration --------------------------------------------------------------------------------------

    def get_log_after_iter(self, runner: Any, batch_idx: int, mode: str) -> tuple[dict[str, Any], str]:
        """Return the row of scalars and the log line of one iteration."""
        assert mode in ("train", "test", "val")
        custom = self._parse_windows_size(runner, batch_idx, self.custom_cfg)
        shown = self._collect_scalars(custom, runner, mode)
        tag = self._collect_scalars(custom, runner, mode, True) if self.log_with_hierarchy else OrderedDict(shown)
        # As in MMEngine, every name that ends in "lr" is taken for a learning rate.
        rates = [name for name in shown if name.endswith("lr")]
        head = self._head(runner, batch_idx, mode, tag)
        head += " ".join(f"{name}: {shown.pop(name):.{self.num_digits}e}" for name in rates) + "  "
        head += self._times(runner, shown)
        if torch.cuda.is_available():
            tag["memory"] = self._get_max_memory(runner)
            head += f"memory: {tag['memory']}  "
        return tag, head + ("  ".join(map(self._item, shown.items())) if mode == "train" else "")

    def _head(self, runner: Any, batch_idx: int, mode: str, tag: dict[str, Any]) -> str:
        """Return ``Epoch(train) [2][ 5/12]  ``, and put the counters into ``tag``."""
        training = _has_train_loop(runner)
        if self.by_epoch or mode != "train":
            done, total = batch_idx + 1, self._get_dataloader_size(runner, mode)
        else:
            done, total = self._get_iter(runner, batch_idx), runner.max_iters
        epoch = " "
        if self.by_epoch and mode in ("train", "val"):
            tag["epoch"] = self._get_epoch(runner, mode)
            # 3: two brackets and a blank.
            width = len(str(runner.max_epochs)) + 3 if training else 0
            epoch = f"[{tag['epoch']}]".rjust(width)
        tag["iter"] = runner.iter + 1 if training else 0
        word = "Epoch" if self.by_epoch else "Iter"
        return f"{word}({mode}){epoch}[{str(done).rjust(len(str(total)))}/{total}]  "

    def _times(self, runner: Any, shown: dict[str, Any]) -> str:
        infos = runner.message_hub.runtime_info
        if "eta" not in infos or "time" not in shown or "data_time" not in shown:
            return ""
        eta = datetime.timedelta(seconds=int(infos["eta"]))
        times = [self._item((name, shown.pop(name))) for name in ("time", "data_time")]
        return "  ".join([f"eta: {eta}", *times]) + "  "

    def _item(self, item: tuple[str, Any]) -> str:
        name, value = item
        if isinstance(value, float):
            value = f"{value:.{self.num_digits}f}"
        elif isinstance(value, (torch.Tensor, np.ndarray)):
            value = f"\n{value}\n"
        return f"{name}: {value}"

    # -- after an epoch ------------------------------------------------------------------------------------------

    def get_log_after_epoch(
        self, runner: Any, batch_idx: int, mode: str, with_non_scalar: bool = False
    ) -> tuple[dict[str, Any], str]:
        """Return the row of scalars and the log line of a validation or test."""
        assert mode in ("test", "val"), f"_get_metric_log_str only accept val or test mode, but got {mode}"
        total = self._get_dataloader_size(runner, mode)
        epoch = f"[{self._get_epoch(runner, mode)}]" if self.by_epoch and mode == "val" else ""
        word = "Epoch" if self.by_epoch else "Iter"
        custom = self._parse_windows_size(runner, batch_idx, self._with_epoch_times(mode))
        everything = self._collect_scalars(custom, runner, mode, self.log_with_hierarchy)
        clocks = {name for clock in ("time", "data_time") for name in (clock, f"{mode}/{clock}")}
        tag = OrderedDict((name, value) for name, value in everything.items() if name not in clocks)
        times = OrderedDict((name, value) for name, value in everything.items() if name in clocks)
        others = self._collect_non_scalars(runner, mode)
        items = "  ".join(map(self._item, chain(tag.items(), others.items(), times.items())))
        if with_non_scalar:
            tag.update(others)
        tag.update(times)
        return tag, f"{word}({mode}) {epoch}[{total}/{total}]    {items}"

    def _with_epoch_times(self, mode: str) -> list[dict[str, Any]]:
        """Return the custom entries, and the means of ``time`` and ``data_time`` over the pass if those are missing."""
        known = {self._remove_prefix(entry["data_src"], f"{mode}/") for entry in self.custom_cfg}
        clocks = [clock for clock in ("time", "data_time") if clock not in known]
        added = [{"data_src": clock, "window_size": "epoch", "method_name": "mean"} for clock in clocks]
        return [*self.custom_cfg, *added]

    # -- scalars and infos ---------------------------------------------------------------------------------------

    def _collect_scalars(
        self, custom_cfg: list[dict[str, Any]], runner: Any, mode: str, reserve_prefix: bool = False
    ) -> OrderedDict[str, Any]:
        """Return all scalars of ``mode`` by name, with the custom entries applied."""
        hub = runner.message_hub
        hub.settle()
        prefix = f"{mode}/"
        histories = {
            key if reserve_prefix else self._remove_prefix(key, prefix): buffer
            for key, buffer in hub.log_scalars.items()
            if key.startswith(mode)  # without the slash, as MMEngine
        }
        tag: OrderedDict[str, Any] = OrderedDict()
        for key, buffer in histories.items():
            smooth = self.mean_pattern.search(key) is not None
            tag[key] = buffer.mean(self.window_size) if smooth else buffer.current()
        for entry in custom_cfg:
            options = dict(entry)
            source = options.pop("data_src")
            name = options.pop("log_name", source)
            if reserve_prefix:
                source, name = prefix + source, prefix + name
            if source in histories:
                tag[name] = histories[source].statistics(**options)
        return tag

    def _collect_non_scalars(self, runner: Any, mode: str) -> dict[str, Any]:
        """Return the infos of ``mode``: metrics that are not numbers."""
        prefix = f"{mode}/"
        infos = runner.message_hub.runtime_info
        found = OrderedDict((key, value) for key, value in infos.items() if key.startswith(prefix))
        if self.log_with_hierarchy:
            return found
        return OrderedDict((self._remove_prefix(key, prefix), value) for key, value in found.items())

    def _parse_windows_size(
        self, runner: Any, batch_idx: int, custom_cfg: list[dict[str, Any]] | None = None
    ) -> list[dict[str, Any]]:
        """Return the entries with ``'epoch'`` and ``'global'`` replaced by numbers of iterations."""
        entries = copy.deepcopy(self.custom_cfg if custom_cfg is None else custom_cfg)
        for entry in entries:
            window = entry.get("window_size")
            if window == "epoch":
                entry["window_size"] = batch_idx + 1
            elif window == "global":
                entry["window_size"] = runner.iter + 1
            elif window is not None and not isinstance(window, int):
                raise TypeError(f"window_size should be int, epoch or global, but got invalid {window}")
        return entries

    # -- counters ------------------------------------------------------------------------------------------------

    def _remove_prefix(self, string: str, prefix: str) -> str:
        return string.removeprefix(prefix)

    def _get_max_memory(self, runner: Any) -> int:
        """Return the peak device memory in MB since the last line, over all ranks."""
        device = getattr(runner.model, "output_device", None)
        peak = get_max_cuda_memory(device)
        if not is_distributed():
            return peak
        most = torch.tensor([peak], dtype=torch.int, device=device)
        torch.distributed.reduce(most, 0, op=torch.distributed.ReduceOp.MAX)
        return int(most.item())

    def _get_iter(self, runner: Any, batch_idx: int) -> int:
        return int(batch_idx if self.by_epoch else runner.iter) + 1

    def _get_epoch(self, runner: Any, mode: str) -> int:
        """Return the epoch of a log line, counted from 1. In a validation the counter has already increased."""
        if mode == "train":
            return int(runner.epoch) + 1
        if mode == "val":
            return int(runner.epoch) if _has_train_loop(runner) else 0
        raise ValueError(f"runner mode should be 'train' or 'val', but got {mode}")

    def _get_cur_loop(self, runner: Any, mode: str) -> Any:
        return getattr(runner, f"{mode}_loop")

    def _get_dataloader_size(self, runner: Any, mode: str) -> int:
        return len(self._get_cur_loop(runner, mode).dataloader)


def _has_train_loop(runner: Any) -> bool:
    loop = getattr(runner, "_train_loop", None)
    return loop is not None and not isinstance(loop, dict)
