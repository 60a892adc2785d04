"""Loggers that write to an experiment tracker, each where its package is installed."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from etude.dialects.mmcv1.live.checks import ConfigTypeError
from etude.dialects.mmcv1.live.hooks.hook import HOOKS
from etude.dialects.mmcv1.live.logger.base import LoggerHook, TrackerHook, need
from etude.dialects.mmcv1.live.parallel import unwrap
from etude.dialects.mmcv1.live.utils.dist import master_only

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


@HOOKS.register_module()
class TensorboardLoggerHook(LoggerHook):
    """Scalars (and texts) to TensorBoard, into ``log_dir`` or ``work_dir/tf_logs``."""

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
        need("tensorboard", "TensorboardLoggerHook", extra="tracking")

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        tensorboard = need("torch.utils.tensorboard", "TensorboardLoggerHook", package="tensorboard", extra="tracking")
        if self.log_dir is None:
            self.log_dir = os.path.join(runner.work_dir or ".", "tf_logs")
        self.writer = tensorboard.SummaryWriter(self.log_dir)

    @master_only
    def log(self, runner: BaseRunner) -> None:
        for tag, value in self.get_loggable_tags(runner, allow_text=True).items():
            if isinstance(value, str):
                self.writer.add_text(tag, value, self.get_iter(runner))
            else:
                self.writer.add_scalar(tag, value, self.get_iter(runner))

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.writer.close()


@HOOKS.register_module()
class WandbLoggerHook(TrackerHook):
    """To Weights & Biases; at the end the files of the run with ``out_suffix`` become an artifact."""

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
        self.wandb = need("wandb", "WandbLoggerHook", extra="tracking")
        self.init_kwargs, self.commit, self.with_step = init_kwargs, commit, with_step
        self.log_artifact, self.out_suffix, self.define_metric_cfg = log_artifact, out_suffix, define_metric_cfg

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        self.wandb.init(**(self.init_kwargs or {}))
        for metric, summary in (self.define_metric_cfg or {}).items():
            self.wandb.define_metric(metric, summary=summary)

    @master_only
    def log(self, runner: BaseRunner) -> None:
        tags = self.get_loggable_tags(runner)
        if not tags:
            return
        if self.with_step:
            self.outbox.put(self.wandb.log, tags, step=self.get_iter(runner), commit=self.commit)
        else:
            self.outbox.put(self.wandb.log, tags | {"global_step": self.get_iter(runner)}, commit=self.commit)

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        if self.log_artifact and runner.work_dir is not None:
            self.outbox.put(self._send_files, runner.work_dir)
        self.outbox.close(self.wandb.finish)

    def _send_files(self, folder: str) -> None:
        artifact = self.wandb.Artifact(name="artifacts", type="model")
        for name in sorted(os.listdir(folder)):
            if name.endswith(self.out_suffix):
                artifact.add_file(os.path.join(folder, name))
        self.wandb.log_artifact(artifact)


@HOOKS.register_module()
class MlflowLoggerHook(TrackerHook):
    """To MLflow; the model itself at the end when ``log_model``."""

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
        self.mlflow = need("mlflow", "MlflowLoggerHook", extra="tracking")
        self.exp_name, self.tags, self.params, self.log_model = exp_name, tags, params, log_model

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        if self.exp_name is not None:
            self.mlflow.set_experiment(self.exp_name)
        # A thread does not see the run that another one has begun; it needs the name.
        self.run_id = (self.mlflow.active_run() or self.mlflow.start_run()).info.run_id
        if self.tags is not None:
            self.mlflow.set_tags(self.tags)
        if self.params is not None:
            self.mlflow.log_params(self.params)

    @master_only
    def log(self, runner: BaseRunner) -> None:
        tags = self.get_loggable_tags(runner)
        if tags:
            self.outbox.put(self.mlflow.log_metrics, tags, step=self.get_iter(runner), run_id=self.run_id)

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close()
        if self.log_model:
            pytorch = need("mlflow.pytorch", "MlflowLoggerHook", extra="tracking")
            settings: dict[str, Any] = {"pip_requirements": [f"torch=={torch.__version__}"]}
            if "serialization_format" in inspect.signature(pytorch.log_model).parameters:
                settings["serialization_format"] = "pickle"  # a traced graph would need an example of the input
            pytorch.log_model(unwrap(runner.model), "models", **settings)


@HOOKS.register_module()
class NeptuneLoggerHook(TrackerHook):
    """To Neptune, of either API: ``neptune.new.init`` before version 1, ``neptune.init_run`` since."""

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
        self.neptune = need("neptune", "NeptuneLoggerHook")
        self.init_kwargs, self.with_step = init_kwargs, with_step

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        if hasattr(self.neptune, "init_run"):
            begin = self.neptune.init_run
        else:
            begin = need("neptune.new", "NeptuneLoggerHook", package="neptune").init
        self.run = begin(**(self.init_kwargs or {}))

    @master_only
    def log(self, runner: BaseRunner) -> None:
        for tag, value in self.get_loggable_tags(runner).items():
            series = self.run[tag]
            write = series.append if hasattr(series, "append") else series.log
            self.outbox.put(write, value, **({"step": self.get_iter(runner)} if self.with_step else {}))

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close(self.run.stop)


@HOOKS.register_module()
class ClearMLLoggerHook(TrackerHook):
    """To ClearML."""

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.clearml = need("clearml", "ClearMLLoggerHook")
        self.init_kwargs = init_kwargs

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        self.task = self.clearml.Task.init(**(self.init_kwargs or {}))
        self.task_logger = self.task.get_logger()

    @master_only
    def log(self, runner: BaseRunner) -> None:
        for tag, value in self.get_loggable_tags(runner).items():
            self.outbox.put(self.task_logger.report_scalar, tag, tag, value, self.get_iter(runner))

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close()


@HOOKS.register_module()
class DvcliveLoggerHook(TrackerHook):
    """To DVCLive, of either API; with ``by_epoch`` one step per epoch, when results wait in the buffer."""

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
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.model_file = model_file
        self.dvclive = dvclive if dvclive is not None else need("dvclive", "DvcliveLoggerHook").Live(**kwargs)

    @master_only
    def log(self, runner: BaseRunner) -> None:
        step = runner.epoch if self.by_epoch else self.get_iter(runner)
        self.outbox.put(self._send, self.get_loggable_tags(runner), step)

    def _send(self, tags: Mapping[str, Any], step: int) -> None:
        old = hasattr(self.dvclive, "set_step")
        if old:
            self.dvclive.set_step(step)
        else:
            self.dvclive.step = step
        write = self.dvclive.log if old else self.dvclive.log_metric
        for tag, value in tags.items():
            write(tag, value)
        if not old:
            self.dvclive.make_summary()

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close()

    @master_only
    def after_train_iter(self, runner: BaseRunner) -> None:
        if not self.by_epoch:
            super().after_train_iter(runner)

    @master_only
    def after_train_epoch(self, runner: BaseRunner) -> None:
        super().after_train_epoch(runner)
        if self.model_file is not None:
            runner.save_checkpoint(
                os.path.dirname(self.model_file) or ".",
                filename_tmpl=os.path.basename(self.model_file),
                create_symlink=False,
            )


@HOOKS.register_module()
class SegmindLoggerHook(TrackerHook):
    """To Segmind."""

    def __init__(
        self, interval: int = 10, ignore_last: bool = True, reset_flag: bool = False, by_epoch: bool = True
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        utilities = need("segmind.tracking.fluent", "SegmindLoggerHook", package="segmind<1")
        self.log_metrics = utilities.log_metrics

    @master_only
    def log(self, runner: BaseRunner) -> None:
        tags = self.get_loggable_tags(runner)
        if tags:
            self.outbox.put(self.log_metrics, metrics=tags, step=runner.epoch, epoch=runner.epoch)

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        self.outbox.close()


@HOOKS.register_module()
class PaviLoggerHook(TrackerHook):
    """To Pavi, tags without the mode; the last checkpoint at the end when asked for."""

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
        """Epochs for results of an evaluation, iterations otherwise."""
        if self.get_mode(runner) == "val" and self.by_epoch:
            return self.get_epoch(runner)
        return self.get_iter(runner)

    @master_only
    def before_run(self, runner: BaseRunner) -> None:
        super().before_run(runner)
        settings = {"name": os.path.basename(runner.work_dir or "run"), **(self.init_kwargs or {})}
        self.writer = self.pavi.SummaryWriter(**settings)

    @master_only
    def log(self, runner: BaseRunner) -> None:
        tags = self.get_loggable_tags(runner, add_mode=False)
        if tags:
            self.outbox.put(self.writer.add_scalars, self.get_mode(runner), tags, self.get_step(runner))

    @master_only
    def after_run(self, runner: BaseRunner) -> None:
        if self.add_last_ckpt and runner.work_dir is not None:
            path = os.path.join(runner.work_dir, "latest.pth")
            if os.path.isfile(path):
                self.outbox.put(
                    self.writer.add_snapshot_file,
                    tag=os.path.basename(runner.work_dir),
                    snapshot_file_path=path,
                    iteration=self.get_iter(runner),
                )
        self.outbox.close(self.writer.close)
