"""torch's profiler around the first iterations."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from etude.dialects.mmengine.live.dist.utils import master_only
from etude.dialects.mmengine.live.hooks.hook import DataBatch, Hook

_FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_flops")


def check_kineto() -> bool:
    """Return True if this torch is built with the profiler's library."""
    return bool(torch.autograd.kineto_available())  # type: ignore[attr-defined]


class ProfilerHook(Hook):
    """Profiles the first epoch, or with ``by_epoch=False`` the first ``profile_times`` iterations.

    ``on_trace_ready`` is a function, ``dict(type='log_trace', sort_by=…, row_limit=…)`` or
    ``dict(type='tb_trace', dir_name=…)``; ``json_trace_path`` gets a Chrome trace.
    """

    priority = "VERY_LOW"

    def __init__(
        self,
        *,
        by_epoch: bool = True,
        profile_times: int = 1,
        activity_with_cpu: bool = True,
        activity_with_cuda: bool = False,
        schedule: dict[str, Any] | None = None,
        on_trace_ready: Callable[..., Any] | dict[str, Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        json_trace_path: str | None = None,
    ) -> None:
        if not check_kineto():
            raise ImportError("ProfilerHook needs a torch that is built with Kineto; leave the hook out")
        assert isinstance(by_epoch, bool), "``by_epoch`` should be a boolean."
        if profile_times < 1:
            raise ValueError(f"profile_iters should be greater than 0, but got {profile_times}")
        if by_epoch and profile_times > 1:
            raise ValueError(f"one epoch can be profiled, got profile_times={profile_times}; use by_epoch=False")
        assert isinstance(activity_with_cpu, bool), "``activity_with_cpu`` should be a boolean."
        assert isinstance(activity_with_cuda, bool), "``activity_with_cuda`` should be a boolean."
        assert schedule is None or isinstance(schedule, dict), "``schedule`` should be a dict."
        self.by_epoch, self.profile_times = by_epoch, profile_times
        self.activities = []
        if activity_with_cpu:
            self.activities.append(torch.profiler.ProfilerActivity.CPU)
        if activity_with_cuda:
            self.activities.append(torch.profiler.ProfilerActivity.CUDA)
        self.schedule = torch.profiler.schedule(**schedule) if schedule is not None else None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops = with_stack, with_flops
        self.json_trace_path = json_trace_path
        self._closed = False

    @master_only
    def before_run(self, runner: Any) -> None:
        limit = runner.max_epochs if self.by_epoch else runner.max_iters
        if limit < self.profile_times:
            raise ValueError(f"profile_times should not be greater than {limit}, got {self.profile_times}")
        flags = {name: getattr(self, name) for name in _FLAGS}
        self.profiler = torch.profiler.profile(
            activities=self.activities,
            schedule=self.schedule,
            on_trace_ready=self._parse_trace_config(runner),
            **flags,
        )
        self.profiler.start()
        runner.logger.info("profiler is profiling...")

    def _parse_trace_config(self, runner: Any) -> Callable[..., Any] | None:
        chosen = self.on_trace_ready
        if chosen is None or callable(chosen):
            return chosen
        if not isinstance(chosen, dict):
            raise ValueError(f"``on_trace_ready`` should be a handler, or dict, or None, but got {chosen!r}")
        options = dict(chosen)
        kind = options.pop("type")
        if kind == "log_trace":
            return _log_trace(runner, **options)
        if kind == "tb_trace":
            return _tensorboard_trace(runner, **options)
        raise ValueError(f'trace_type should be "log_trace" or "tb_trace", but got {kind!r}')

    @master_only
    def after_train_epoch(self, runner: Any) -> None:
        if self.by_epoch and not self._closed:
            self._export_chrome_trace(runner)

    @master_only
    def after_train_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: dict[str, Any] | None = None
    ) -> None:
        if self._closed:
            return
        self.profiler.step()
        if not self.by_epoch and runner.iter == self.profile_times - 1:
            self._export_chrome_trace(runner)

    def _export_chrome_trace(self, runner: Any) -> None:
        self._closed = True
        runner.logger.info("profiler may take a few minutes to save the profiling result.")
        self.profiler.stop()
        if self.json_trace_path is not None:
            self.profiler.export_chrome_trace(self.json_trace_path)


class NPUProfilerHook(Hook):
    """Ascend's profiler; known by name, so that a config that asks for it is reported why it cannot be had."""

    priority = "VERY_LOW"

    def __init__(self, *, begin: int = 0, end: int = 1, result_path: str = "cann_profiling", **kwargs: Any) -> None:
        if begin >= end:
            raise ValueError(f"begin should be less than end, got {begin} and {end}")
        raise RuntimeError("NPUProfilerHook needs an Ascend NPU and torch_npu; use ProfilerHook")


def _log_trace(runner: Any, sort_by: str = "self_cpu_time_total", row_limit: int = 15) -> Callable[[Any], None]:
    def ready(profiler: Any) -> None:
        runner.logger.info(f"\n{profiler.key_averages().table(sort_by=sort_by, row_limit=row_limit)}")

    return ready


def _tensorboard_trace(runner: Any, dir_name: str | None = None, **options: Any) -> Callable[[Any], None]:
    folder = os.path.join(runner.log_dir, dir_name or "tf_tracing_logs")
    ready: Callable[[Any], None] = torch.profiler.tensorboard_trace_handler(folder, **options)
    return ready
