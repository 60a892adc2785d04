"""The base classes of mmcv's logger hooks: when to write, and the step, mode and tag of a value."""

from __future__ import annotations

import importlib
import numbers
import shlex
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from etude.errors import MissingExtra, UserError
from etude.events.trackers.outbox import Outbox
from etude.events.trackers.service import Service, is_installed
from etude_openmm.mmcv1.live.hooks.hook import Hook
from etude_openmm.mmcv1.live.utils.dist import master_only

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner


class LoggerHook(Hook):
    """Averages the log buffer every ``interval`` iterations (of the epoch, if ``by_epoch``) and calls :meth:`log`.

    All loggers share one buffer. When one of them has averaged it, those after it write too, until the last one, which
    has ``reset_flag``, clears it.
    """

    def __init__(
        self, interval: int = 10, ignore_last: bool = True, reset_flag: bool = False, by_epoch: bool = True
    ) -> None:
        self.interval, self.ignore_last, self.reset_flag, self.by_epoch = interval, ignore_last, reset_flag, by_epoch

    def log(self, runner: BaseRunner) -> Any:
        raise AttributeError(f"{type(self).__name__} must define log(runner)")

    @staticmethod
    def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
        """Return whether ``val`` is one number; optionally arrays and tensors of one element count, too."""
        if isinstance(val, torch.Tensor):
            # mmcv calls len(), which fails for 0-d tensors.
            return include_torch and val.ndim > 0 and len(val) == 1
        return isinstance(val, numbers.Number) or (include_np and isinstance(val, np.ndarray) and val.ndim == 0)

    def get_mode(self, runner: BaseRunner) -> str:
        """Return ``train`` or ``val``. As in mmcv, results without a ``time`` are those of an evaluation."""
        if runner.mode == "train":
            return "train" if "time" in runner.log_buffer.output else "val"
        if runner.mode == "val":
            return "val"
        raise ValueError(f"the runner's mode is train or val, got {runner.mode!r}")

    def get_epoch(self, runner: BaseRunner) -> int:
        """Return the current epoch, counted from 1; after a validation epoch the one that it belongs to."""
        if runner.mode == "train":
            return runner.epoch + 1
        if runner.mode == "val":
            return runner.epoch
        raise ValueError(f"the runner's mode is train or val, got {runner.mode!r}")

    def get_iter(self, runner: BaseRunner, inner_iter: bool = False) -> int:
        """Return the iteration, counted from 1; within the epoch if ``inner_iter`` and ``by_epoch``."""
        return runner.inner_iter + 1 if self.by_epoch and inner_iter else runner.iter + 1

    def get_lr_tags(self, runner: BaseRunner) -> dict[str, float]:
        return _first_of_each("learning_rate", runner.current_lr())

    def get_momentum_tags(self, runner: BaseRunner) -> dict[str, float]:
        return _first_of_each("momentum", runner.current_momentum())

    def get_loggable_tags(
        self,
        runner: BaseRunner,
        allow_scalar: bool = True,
        allow_text: bool = False,
        add_mode: bool = True,
        tags_to_skip: tuple[str, ...] = ("time", "data_time"),
    ) -> dict[str, Any]:
        """Return the values for a tracker: ``<mode>/<name>`` of the buffer, the learning rate and the momentum."""
        tags: dict[str, Any] = {}
        for name, value in runner.log_buffer.output.items():
            if name in tags_to_skip or (isinstance(value, str) and not allow_text):
                continue
            if self.is_scalar(value) and not allow_scalar:
                continue
            tags[f"{self.get_mode(runner)}/{name}" if add_mode else name] = value
        return tags | self.get_lr_tags(runner) | self.get_momentum_tags(runner)

    def before_run(self, runner: BaseRunner) -> None:
        # Only the last logger clears the buffer, after all have read it.
        for hook in runner.hooks[::-1]:
            if isinstance(hook, LoggerHook):
                hook.reset_flag = True
                break

    def before_epoch(self, runner: BaseRunner) -> None:
        runner.log_buffer.clear()

    def after_train_iter(self, runner: BaseRunner) -> None:
        due = self.every_n_inner_iters if self.by_epoch else self.every_n_iters
        if due(runner, self.interval) or (not self.ignore_last and self.end_of_epoch(runner)):
            runner.log_buffer.average(self.interval)
        if runner.log_buffer.ready:
            self._write(runner)

    def after_train_epoch(self, runner: BaseRunner) -> None:
        self._write(runner)

    def after_val_epoch(self, runner: BaseRunner) -> None:
        runner.log_buffer.average()
        self._write(runner)

    def _write(self, runner: BaseRunner) -> None:
        if runner.log_buffer.ready:
            self.log(runner)
            if self.reset_flag:
                runner.log_buffer.clear_output()


class OutboxHook(LoggerHook):
    """A logger that writes to a service from a separate thread, so that a slow or lost service never stops a run."""

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(type(self).__name__, after=self._flush)

    def _flush(self) -> None: ...

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close()


class TrackerHook(OutboxHook):
    """A logger that writes to one of :mod:`etude.events.trackers`: ``kind``, opened with ``init_kwargs``."""

    kind: type[Service]
    init_kwargs: dict[str, Any] | None = None

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._require_package()
        self.service: Any = self.kind()

    def _require_package(self) -> None:
        if not is_installed(self.kind.package):
            raise MissingPackage(self.kind.package, type(self).__name__, self.kind.extra or None)

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        self.begin(**(self.init_kwargs or {}))

    def begin(self, *args: Any, **settings: Any) -> Any:
        """Open the tracker in its thread. If the program has imported the tracker's package, wait until it is open."""
        return self.outbox.begin(self.service.package, self.service.begin, *args, **settings)

    def opened(self) -> Any:
        """Return the service once it is open, for your own calls."""
        self.outbox.flush()
        return self.service

    @master_only
    def log(self, runner: BaseRunner) -> None:
        self.outbox.put(self.service.scalars, self.get_loggable_tags(runner), self.get_step(runner))

    def get_step(self, runner: BaseRunner) -> int | None:
        """Return the step that the tracker shows values at."""
        return self.get_iter(runner)

    def _flush(self) -> None:
        self.service.flush()

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close(self.service.finish)


#: Packages that cannot be installed by their name, and what to do.
_NOT_PUBLIC = {"pavi": "it is not public; use another logger, such as TensorboardLoggerHook"}


class MissingPackage(MissingExtra, ImportError):
    """The package that a tracker's hook writes to is not installed."""

    def __init__(self, package: str, purpose: str, extra: str | None = None) -> None:
        if extra is not None:
            super().__init__(package, extra, purpose)
        else:
            remedy = _NOT_PUBLIC.get(package) or f"pip install {shlex.quote(package)}"
            UserError.__init__(self, f"{purpose} needs the package {package!r}: {remedy}")


def need(module: str, hook: str, *, package: str | None = None, extra: str | None = None) -> Any:
    """Import and return the module that ``hook`` writes to. Raises :class:`MissingPackage` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackage(package or module.partition(".")[0], hook, extra) from error


def _first_of_each(name: str, values: Any) -> dict[str, float]:
    if isinstance(values, dict):
        return {f"{name}/{key}": value[0] for key, value in values.items()}
    return {name: values[0]}
