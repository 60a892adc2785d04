"""ProfilerHook: runs ``torch.profiler`` on the first epochs or iterations."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from etude_openmm.mmcv1.live.hooks.hook import HOOKS, Hook
from etude_openmm.mmcv1.live.logger.base import need
from etude_openmm.shared.errors import ConfigTypeError, ConfigValueError

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner


@HOOKS.register_module()
class ProfilerHook(Hook):
    """Profiles the first ``profile_iters`` epochs or iterations, and prints or exports the result."""

    def __init__(
        self,
        by_epoch: bool = True,
        profile_iters: int = 1,
        activities: Sequence[str] = ["cpu", "cuda"],
        schedule: dict[str, int] | None = None,
        on_trace_ready: Callable[..., Any] | dict[str, Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        json_trace_path: str | None = None,
    ) -> None:
        if not isinstance(by_epoch, bool):
            raise AssertionError(f"by_epoch must be True or False, got {by_epoch!r}")
        if profile_iters < 1:
            raise ConfigValueError(f"profile_iters must be at least 1, got {profile_iters}")
        self.by_epoch, self.profile_iters = by_epoch, profile_iters
        self.activities = _activities(activities)
        self.schedule = torch.profiler.schedule(**schedule) if schedule is not None else None
        self.on_trace_ready = on_trace_ready
        self.record_shapes, self.profile_memory = record_shapes, profile_memory
        self.with_stack, self.with_flops, self.json_trace_path = with_stack, with_flops, json_trace_path
        self.profiler: Any = None

    def before_run(self, runner: BaseRunner) -> None:
        end = runner.max_epochs if self.by_epoch else runner.max_iters
        if end is not None and end < self.profile_iters:
            raise ConfigValueError(f"profile_iters is {self.profile_iters}, but the run has only {end}")
        self.profiler = torch.profiler.profile(
            activities=self.activities,
            schedule=self.schedule,
            on_trace_ready=self._handler(runner),
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
        )
        self.profiler.__enter__()
        runner.logger.info("profiler is profiling...")

    def after_train_epoch(self, runner: BaseRunner) -> None:
        if self.by_epoch and runner.epoch == self.profile_iters - 1:
            self._finish(runner)

    def after_train_iter(self, runner: BaseRunner) -> None:
        if self.profiler is None:
            return
        self.profiler.step()
        if not self.by_epoch and runner.iter == self.profile_iters - 1:
            self._finish(runner)

    def _finish(self, runner: BaseRunner) -> None:
        runner.logger.info("profiler may take a few minutes...")
        profiler, self.profiler = self.profiler, None
        profiler.__exit__(None, None, None)
        if self.json_trace_path is not None:
            profiler.export_chrome_trace(self.json_trace_path)

    def _handler(self, runner: BaseRunner) -> Any:
        given = self.on_trace_ready
        if given is None or callable(given):
            return given
        if not isinstance(given, dict):
            raise ConfigValueError(f"on_trace_ready must be a function, a dict or None, got {type(given).__name__}")
        settings = dict(given)
        kind = settings.pop("type", None)
        if kind == "log_trace":
            return lambda profiler: print(profiler.key_averages().table(**settings))
        if kind == "tb_trace":
            need("torch_tb_profiler", "ProfilerHook with tb_trace", package="torch_tb_profiler")
            folder = os.path.join(runner.work_dir or ".", settings.pop("dir_name", "tf_tracing_logs"))
            return torch.profiler.tensorboard_trace_handler(folder, **settings)
        raise ConfigValueError(f"on_trace_ready has the type 'log_trace' or 'tb_trace', got {kind!r}")


def _activities(names: Sequence[str]) -> list[Any]:
    if not isinstance(names, list):
        raise ConfigTypeError(f"activities must be a list, got {type(names).__name__}")
    known = {"cpu": torch.profiler.ProfilerActivity.CPU, "cuda": torch.profiler.ProfilerActivity.CUDA}
    unknown = [name for name in names if str(name).lower() not in known]
    if unknown:
        raise ConfigValueError(f"activities are 'cpu' and 'cuda', got {unknown[0]!r}")
    wanted = [str(name).lower() for name in names]
    return [known[name] for name in wanted if name == "cpu" or torch.cuda.is_available()]
