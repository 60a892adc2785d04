"""mmcv's logger hooks for experiment trackers (TensorBoard, W&B, MLflow …), over :mod:`etude.events.trackers`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.dialects.properties import reads
from etude.events.trackers.clearml import ClearMLTask
from etude.events.trackers.local import DvcLiveRun
from etude.events.trackers.mlflow import MlflowRun
from etude.events.trackers.tensorboard import EventFiles
from etude.events.trackers.wandb import WandbRun
from etude_openmm.mmcv1.live.hooks.hook import HOOKS
from etude_openmm.mmcv1.live.logger.base import LoggerHook, OutboxHook, TrackerHook, need
from etude_openmm.mmcv1.live.parallel import unwrap
from etude_openmm.mmcv1.live.utils.dist import master_only
from etude_openmm.shared.errors import ConfigTypeError
from etude_openmm.shared.live.neptune import NeptuneRun

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner


@HOOKS.register_module()
class TensorboardLoggerHook(TrackerHook):
    """Writes scalars and texts to TensorBoard, in ``log_dir`` or ``work_dir/tf_logs``."""

    kind = EventFiles

    def __init__(
        self,
        log_dir: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.log_dir = log_dir

    def begin(self, *args: Any, **settings: Any) -> Any:
        # Always waits: hooks of users call ``writer`` from their first stage on.
        return self.outbox.ask(self.service.begin, self.log_dir)

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        if self.log_dir is None:
            self.log_dir = os.path.join(runner.work_dir or ".", "tf_logs")
        super().before_run(runner)

    #: The ``SummaryWriter``, for your own calls.
    writer: Any = reads("service.writer")

    @master_only
    def log(self, runner: BaseRunner) -> None:
        for tag, value in self.get_loggable_tags(runner, allow_text=True).items():
            if isinstance(value, str):
                self.outbox.put(self.service.text, tag, value, self.get_iter(runner))
            else:
                self.outbox.put(self.service.scalars, {tag: value}, self.get_iter(runner))


@HOOKS.register_module()
class WandbLoggerHook(TrackerHook):
    """Writes to Weights & Biases. At the end, files of the run with ``out_suffix`` become an artifact."""

    kind = WandbRun

    # In mmcv's order: MMClsWandbHook and MMDetWandbHook hand their arguments on by position.
    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        commit: bool = True,
        by_epoch: bool = True,
        with_step: bool = True,
        log_artifact: bool = True,
        out_suffix: str | tuple[str, ...] = (".log.json", ".log", ".py"),
        define_metric_cfg: dict[str, str] | None = None,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.init_kwargs, self.commit, self.with_step = init_kwargs, commit, with_step
        self.log_artifact, self.out_suffix, self.define_metric_cfg = log_artifact, out_suffix, define_metric_cfg

    def begin(self, *args: Any, **settings: Any) -> Any:
        metrics = [{"name": name, "summary": kind} for name, kind in (self.define_metric_cfg or {}).items()]
        return super().begin(metrics, **settings)

    @property
    def wandb(self) -> Any:
        """Return the package, for your own calls, with the run that is open."""
        self.outbox.flush()
        return need("wandb", "WandbLoggerHook", extra="tracking")

    @master_only
    def log(self, runner: BaseRunner) -> None:
        tags, step = self.get_loggable_tags(runner), self.get_iter(runner)
        if self.with_step:
            self.outbox.put(self.service.row, tags, step=step, commit=self.commit)
        else:
            self.outbox.put(self.service.row, tags | {"global_step": step}, commit=self.commit)

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        if self.log_artifact and runner.work_dir is not None:
            self.outbox.send(self._send_files, runner.work_dir)
        super().after_run(runner)

    def _send_files(self, folder: str) -> None:
        names = [name for name in sorted(os.listdir(folder)) if name.endswith(self.out_suffix)]
        self.service.files("artifacts", [Path(folder, name) for name in names])


@HOOKS.register_module()
class MlflowLoggerHook(TrackerHook):
    """Writes to MLflow; with ``log_model`` also the model, at the end."""

    kind = MlflowRun

    def __init__(
        self,
        exp_name: str | None = None,
        tags: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        log_model: bool = True,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.exp_name, self.tags, self.params, self.log_model = exp_name, tags, params, log_model

    def begin(self, *args: Any, **settings: Any) -> Any:
        if super().begin(active_run(), experiment=self.exp_name or ""):
            self.service.activate()
        if self.tags is not None:
            self.outbox.put(self.service.tags, self.tags)
        if self.params is not None:
            self.outbox.put(self.service.params, self.params)

    @property
    def mlflow(self) -> Any:
        """Return the package, for your own calls, with the run that is open."""
        mlflow = need("mlflow", "MlflowLoggerHook", extra="tracking")
        self.opened().activate()
        return mlflow

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        if self.log_model:
            self.outbox.send(self.service.model, unwrap(runner.model), "models")
        super().after_run(runner)
        if self.outbox.is_done:
            self.service.deactivate()


def active_run() -> str:
    """Return the id of the MLflow run that the user's program has begun in this thread, if any."""
    mlflow = sys.modules.get("mlflow")
    active = mlflow.active_run() if mlflow is not None else None
    return str(active.info.run_id) if active is not None else ""


@HOOKS.register_module()
class NeptuneLoggerHook(TrackerHook):
    """Writes to Neptune 1."""

    kind = NeptuneRun

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = True,
        with_step: bool = True,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.init_kwargs, self.with_step = init_kwargs, with_step

    @master_only
    def before_run(self, runner: BaseRunner) -> None:  # as in mmcv, without super(): this hook has reset_flag
        self.begin(**(self.init_kwargs or {}))

    @property
    def run(self) -> Any:
        """Return Neptune's run, for your own calls."""
        return self.opened().run

    def get_step(self, runner: BaseRunner) -> int | None:
        return self.get_iter(runner) if self.with_step else None


@HOOKS.register_module()
class ClearMLLoggerHook(TrackerHook):
    """Writes to ClearML."""

    kind = ClearMLTask

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.init_kwargs = init_kwargs

    @property
    def task(self) -> Any:
        """Return ClearML's task, for your own calls."""
        return self.opened().task

    @master_only
    def log(self, runner: BaseRunner) -> None:
        for tag, value in self.get_loggable_tags(runner).items():
            self.outbox.put(self.service.scalar, tag, tag, value, self.get_iter(runner))


@HOOKS.register_module()
class DvcliveLoggerHook(TrackerHook):
    """Writes to DVCLive; with ``by_epoch`` one step per epoch, if results are in the buffer."""

    kind = DvcLiveRun

    def __init__(
        self,
        model_file: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        dvclive: Any = None,
        **kwargs: Any,
    ) -> None:
        self.model_file, self._live = model_file, dvclive
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.begin(dvclive, **kwargs)

    def _require_package(self) -> None:
        if self._live is None:
            super()._require_package()

    @property
    def dvclive(self) -> Any:
        """Return the ``Live`` object, for your own calls."""
        return self.opened().live

    def before_run(self, runner: BaseRunner) -> None:
        LoggerHook.before_run(self, runner)  # it is open already

    def get_step(self, runner: BaseRunner) -> int | None:
        return runner.epoch if self.by_epoch else self.get_iter(runner)

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close()  # as in mmcv, the user closes the object

    @master_only
    def after_train_iter(self, runner: BaseRunner) -> None:
        if not self.by_epoch:
            super().after_train_iter(runner)

    @master_only
    def after_train_epoch(self, runner: BaseRunner) -> None:
        super().after_train_epoch(runner)
        if self.model_file is not None:
            folder, name = os.path.split(self.model_file)
            runner.save_checkpoint(folder or ".", filename_tmpl=name, create_symlink=False)


@HOOKS.register_module()
class SegmindLoggerHook(OutboxHook):
    """Writes to Segmind."""

    def __init__(
        self, interval: int = 10, ignore_last: bool = True, reset_flag: bool = False, by_epoch: bool = True
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        # Today's releases of segmind have no tracker.
        utilities = need("segmind.tracking.fluent", "SegmindLoggerHook", package="segmind<1")
        self.log_metrics = utilities.log_metrics

    @master_only
    def log(self, runner: BaseRunner) -> None:
        tags = self.get_loggable_tags(runner)
        self.outbox.put(self.log_metrics, metrics=tags, step=runner.epoch, epoch=runner.epoch)


@HOOKS.register_module()
class PaviLoggerHook(OutboxHook):
    """Writes to Pavi, with tags without the mode; with ``add_last_ckpt`` also the last checkpoint, at the end."""

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        add_graph: bool | None = None,
        img_key: str | None = None,
        add_last_ckpt: bool = False,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        add_graph_kwargs: dict[str, Any] | None = None,
        add_ckpt_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        for name, given in (("add_graph_kwargs", add_graph_kwargs), ("add_ckpt_kwargs", add_ckpt_kwargs)):
            if given is not None and not isinstance(given, Mapping):
                raise ConfigTypeError(f"{name} must be a dict, got {type(given).__name__}")
        self.init_kwargs, self.add_last_ckpt = init_kwargs, add_last_ckpt
        self.add_ckpt_kwargs: dict[str, Any] = {"active": False, "start": 0, "interval": 1, **(add_ckpt_kwargs or {})}
        self.pavi = need("pavi", "PaviLoggerHook")

    def get_step(self, runner: BaseRunner) -> int:
        """Return the epoch for results of an evaluation, else the iteration."""
        if self.get_mode(runner) == "val" and self.by_epoch:
            return self.get_epoch(runner)
        return self.get_iter(runner)

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        settings = {"name": os.path.basename(runner.work_dir or "run"), **(self.init_kwargs or {})}
        self.outbox.put(self._begin, settings)

    def _begin(self, settings: dict[str, Any]) -> None:
        self.writer = self.pavi.SummaryWriter(**settings)

    def _call(self, method: str, *args: Any, **settings: Any) -> None:
        """Call a method of the writer, which exists only in the thread of the outbox."""
        getattr(self.writer, method)(*args, **settings)

    @master_only
    def log(self, runner: BaseRunner) -> None:
        tags = self.get_loggable_tags(runner, add_mode=False)
        self.outbox.put(self._call, "add_scalars", self.get_mode(runner), tags, self.get_step(runner))

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        folder = runner.work_dir or ""
        path = os.path.join(folder, "latest.pth")
        if self.add_last_ckpt and folder and os.path.isfile(path):
            tag, now = os.path.basename(folder), self.get_iter(runner)
            send = partial(self._call, "add_snapshot_file", tag=tag, snapshot_file_path=path, iteration=now)
            self.outbox.send(send)
        self.outbox.close(lambda: self.writer.close())
