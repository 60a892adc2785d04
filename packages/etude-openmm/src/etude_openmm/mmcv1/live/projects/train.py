"""``train_model`` of MMClassification and of MMTracking.

Both make loaders, wrap the model, make a runner and register hooks, in this order. Each step differs between them;
:class:`Classification` and :class:`Tracking` have the details.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from etude_openmm.mmcv1.live.hooks import evaluation
from etude_openmm.mmcv1.live.hooks.hook import HOOKS
from etude_openmm.mmcv1.live.hooks.optimizer_hook import Fp16OptimizerHook, OptimizerHook, loss_of
from etude_openmm.mmcv1.live.hooks.small_hooks import DistSamplerSeedHook
from etude_openmm.mmcv1.live.optimizers import build_optimizer
from etude_openmm.mmcv1.live.parallel import MMDataParallel, MMDistributedDataParallel
from etude_openmm.mmcv1.live.projects import builders, frames
from etude_openmm.mmcv1.live.projects.builders import BaseDataset, check_metrics
from etude_openmm.mmcv1.live.runner import runners
from etude_openmm.mmcv1.live.runner.epoch_runner import EpochBasedRunner
from etude_openmm.mmcv1.live.runner.wiring import Wired, begin, present, validation_of
from etude_openmm.mmcv1.live.utils.dist import get_dist_info
from etude_openmm.mmcv1.tracking import trains_a_part
from etude_openmm.shared.errors import ConfigKeyError
from etude_openmm.shared.logging import get_logger

if TYPE_CHECKING:
    from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner

_SPLITS = ("train", "val", "test", "train_dataloader", "val_dataloader", "test_dataloader")


def get_root_logger(log_file: Any = None, log_level: int | str = logging.INFO) -> logging.Logger:
    return get_logger("mmcls", log_file, log_level)


def get_track_logger(log_file: Any = None, log_level: int | str = logging.INFO) -> logging.Logger:
    return get_logger("mmtrack", log_file, log_level)


def auto_select_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def wrap_non_distributed_model(
    model: nn.Module, device: str = "cuda", dim: int = 0, *args: Any, **kwargs: Any
) -> nn.Module:
    """Return the model in a wrapper for one device on CUDA, without a wrapper on the CPU."""
    if device == "cuda":
        return MMDataParallel(model.cuda(), *args, dim=dim, **kwargs)
    return model.cpu() if device == "cpu" else model.to(device)


def wrap_distributed_model(model: nn.Module, device: str = "cuda", **kwargs: Any) -> nn.Module:
    """Return the model in a wrapper that averages gradients over all ranks."""
    settings: dict[str, Any] = {"broadcast_buffers": False, **kwargs}
    if device == "cuda":
        model, settings = model.cuda(), {"device_ids": [torch.cuda.current_device()], **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # newer torch has another name for broadcast_buffers
        return MMDistributedDataParallel(model, **settings)


def train_model(
    model: nn.Module,
    dataset: Any,
    cfg: Any,
    distributed: bool = False,
    validate: bool = False,
    timestamp: str | None = None,
    device: str | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Train ``model`` on ``dataset`` (or on one per entry of the workflow) as ``cfg`` says."""
    _train(Classification(cfg, distributed, device), model, dataset, validate, timestamp, meta)


def train_track_model(
    model: nn.Module,
    dataset: Any,
    cfg: Any,
    distributed: bool = False,
    validate: bool = False,
    timestamp: str | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Train ``model`` for ``cfg.total_epochs`` on ``dataset`` (or on one per entry of the workflow)."""
    _train(Tracking(cfg, distributed), model, dataset, validate, timestamp, meta)


def _train(wiring: Wiring, model: nn.Module, dataset: Any, validate: bool, timestamp: Any, meta: Any) -> None:
    wired = wiring.wire(model, dataset, validate=validate, timestamp=timestamp, meta=meta)
    begin(wired, wiring.cfg)
    wired.run()


class Wiring:
    """The steps of a project's training function before ``runner.run``."""

    root_logger: Callable[..., logging.Logger]

    def __init__(self, cfg: Any, distributed: bool = False, device: str | None = None) -> None:
        self.cfg, self.distributed = cfg, distributed
        self.device = device or cfg.get("device") or auto_select_device()

    def wire(self, model: nn.Module, dataset: Any, *, validate: bool, timestamp: Any, meta: Any) -> Wired:
        """Build everything of a run, without resuming or running."""
        datasets = list(dataset) if isinstance(dataset, list | tuple) else [dataset]
        loaders = [self.loader(one) for one in datasets]
        wrapped = self.wrapped(model)
        runner, length = self.runner({
            "model": wrapped,
            "optimizer": build_optimizer(wrapped, present(self.cfg, "optimizer")),
            "work_dir": self.cfg.get("work_dir"),
            "logger": self.root_logger(log_level=self.cfg.get("log_level", "INFO")),
            "meta": meta,
        })  # fmt: skip
        runner.timestamp = timestamp or runner.timestamp  # one for the log file and the JSON lines
        self.register(runner, validate=validate)
        return Wired(runner, loaders, self.cfg.get("workflow", [("train", 1)]), length)

    def loader(self, dataset: Any) -> Any:
        raise NotImplementedError

    def wrapped(self, model: nn.Module) -> nn.Module:
        raise NotImplementedError

    def runner(self, parts: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the runner, and the arguments of its ``run`` in addition to loaders and workflow."""
        raise NotImplementedError

    def register(self, runner: Any, *, validate: bool) -> None:
        raise NotImplementedError

    def register_training_hooks(self, runner: Any, optimizer_config: Any, **others: Any) -> None:
        cfg = self.cfg
        runner.register_training_hooks(
            present(cfg, "lr_config"),
            optimizer_config,
            present(cfg, "checkpoint_config"),
            present(cfg, "log_config"),
            cfg.get("momentum_config"),
            **others,
        )


class Classification(Wiring):
    """The steps of MMClassification."""

    root_logger = staticmethod(get_root_logger)

    def loader(self, dataset: Any) -> Any:
        return builders.build_dataloader(dataset, **{**self._common(), **self.cfg["data"].get("train_dataloader", {})})

    def _common(self) -> dict[str, Any]:
        found = {
            "num_gpus": len(self.cfg.get("gpu_ids") or [0]),
            "dist": self.distributed,
            "round_up": True,
            "seed": self.cfg.get("seed"),
            "sampler_cfg": self.cfg.get("sampler"),
        }
        return found | {key: value for key, value in self.cfg["data"].items() if key not in _SPLITS}

    def wrapped(self, model: nn.Module) -> nn.Module:
        if self.distributed:
            unused = self.cfg.get("find_unused_parameters", False)
            return wrap_distributed_model(model, self.device, find_unused_parameters=unused)
        devices = {"device_ids": self.cfg.get("gpu_ids")} if self.device == "cuda" else {}
        return wrap_non_distributed_model(model, self.device, **devices)

    def runner(self, parts: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if self.cfg.get("runner") is None:
            self.cfg["runner"] = {"type": "EpochBasedRunner", "max_epochs": present(self.cfg, "total_epochs", "runner")}
            warnings.warn(
                "config is now expected to have a `runner` section, please set `runner` in your config.", stacklevel=2
            )
        return runners.build_runner(self.cfg["runner"], default_args={"batch_processor": None, **parts}), {}

    def register(self, runner: Any, *, validate: bool) -> None:
        custom = self.cfg.get("custom_hooks")
        self.register_training_hooks(runner, self._optimizer_config(), custom_hooks_config=custom)
        # As in MMClassification, only for the runner of this very name.
        if self.distributed and self.cfg["runner"]["type"] == "EpochBasedRunner":
            runner.register_hook(DistSamplerSeedHook())
        if validate:
            self._register_evaluation(runner)

    def _optimizer_config(self) -> Any:
        given, fp16 = present(self.cfg, "optimizer_config"), self.cfg.get("fp16")
        if fp16 is not None:
            return Fp16OptimizerHook(**(given or {}), loss_scale=fp16["loss_scale"], distributed=self.distributed)
        if self.distributed and given is not None and "type" not in given:
            return DistOptimizerHook(**given)
        return given

    def _register_evaluation(self, runner: Any) -> None:
        settings = {**self._common(), "shuffle": False, "sampler_cfg": None, "drop_last": False}
        settings |= self.cfg["data"].get("val_dataloader", {})
        loader = builders.build_dataloader(
            builders.build_dataset(validation_of(self.cfg), {"test_mode": True}), **settings
        )
        evaluation = dict(self.cfg.get("evaluation") or {})
        # As in MMClassification, this replaces what ``evaluation`` says.
        evaluation["by_epoch"] = self.cfg["runner"]["type"] != "IterBasedRunner"
        hook = DistEvalHook if self.distributed or get_dist_info()[1] > 1 else EvalHook
        # LOW is after the timer and custom hooks at NORMAL, as in MMClassification.
        runner.register_hook(hook(loader, **evaluation), priority="LOW")


class Tracking(Wiring):
    """The steps of MMTracking."""

    root_logger = staticmethod(get_track_logger)

    @property
    def _has_own_runner(self) -> bool:
        return bool(trains_a_part(self.cfg) and self.cfg.get("runner"))

    def loader(self, dataset: Any) -> Any:
        given = self.cfg["data"]
        return builders.build_track_dataloader(
            dataset,
            # imgs_per_gpu is the deprecated name.
            given.get("samples_per_gpu", given.get("imgs_per_gpu", 1)),
            given.get("workers_per_gpu", 0),
            num_gpus=len(self.cfg.get("gpu_ids") or [0]),
            samples_per_epoch=self.cfg.get("samples_per_epoch"),
            dist=self.distributed,
            seed=self.cfg.get("seed"),
            persistent_workers=given.get("persistent_workers", False),
        )

    def wrapped(self, model: nn.Module) -> nn.Module:
        """Return the model in a wrapper, even on the CPU: MMTracking's hooks use ``runner.model.module``."""
        if self.distributed:
            unused = self.cfg.get("find_unused_parameters", False)
            return wrap_distributed_model(model, auto_select_device(), find_unused_parameters=unused)
        if torch.cuda.is_available():
            return MMDataParallel(model.cuda(), device_ids=list(self.cfg.get("gpu_ids") or [0]))
        return MMDataParallel(model)

    def runner(self, parts: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if self._has_own_runner:
            return runners.build_runner(self.cfg["runner"], default_args={"batch_processor": None, **parts}), {}
        return EpochBasedRunner(**parts), {"max_epochs": self._epochs()}

    def _epochs(self) -> Any:
        """Return ``total_epochs``, or ``runner.max_epochs`` if a config has only ``runner``."""
        length = (self.cfg.get("runner") or {}).get("max_epochs")
        if self.cfg.get("total_epochs") is None and not length:
            raise ConfigKeyError("the config has no `total_epochs`", hint="write total_epochs = 12")
        return self.cfg["total_epochs"] if self.cfg.get("total_epochs") is not None else length

    def register(self, runner: Any, *, validate: bool) -> None:
        self.register_training_hooks(runner, self._optimizer_config())
        if self.distributed:
            runner.register_hook(DistSamplerSeedHook())
        if validate:
            self._register_evaluation(runner)
        # After the evaluation, unlike in MMClassification: custom hooks at NORMAL act after it here, before it there.
        custom = self.cfg.get("custom_hooks") or []
        if not isinstance(custom, list):
            raise AssertionError(f"custom_hooks expect list type, but got {type(custom)}")
        for one in custom:
            if not isinstance(one, dict):
                raise AssertionError(f"Each item in custom_hooks expects dict type, but got {type(one)}")
            runner.register_hook_from_cfg(one)

    def _optimizer_config(self) -> Any:
        given, fp16 = present(self.cfg, "optimizer_config"), self.cfg.get("fp16")
        if given is None or not isinstance(given, dict):
            return given
        given.setdefault("type", "Fp16OptimizerHook" if fp16 is not None else "OptimizerHook")
        if fp16 is not None:
            given.update(fp16)
        if "Fp16" in given["type"]:
            given.update(distributed=self.distributed)
        return given

    def _register_evaluation(self, runner: Any) -> None:
        dataset = builders.build_track_dataset(validation_of(self.cfg), {"test_mode": True})
        workers = self.cfg["data"].get("workers_per_gpu", 0)
        # MMTracking evaluates single frames, whatever samples_per_gpu says.
        loader = builders.build_track_dataloader(dataset, 1, workers, dist=self.distributed, shuffle=False)
        evaluation = dict(self.cfg.get("evaluation") or {})
        if self._has_own_runner:
            evaluation["by_epoch"] = self.cfg["runner"]["type"] != "IterBasedRunner"
        hook = frames.DistEvalHook if self.distributed else frames.EvalHook
        runner.register_hook(hook(loader, **evaluation), priority="LOW" if trains_a_part(self.cfg) else "NORMAL")


class EvalHook(evaluation.EvalHook):
    """MMClassification's evaluation hook for one process."""

    def _check_arguments(self, runner: BaseRunner, dataset: Any) -> None:
        """Check the metrics before training, if the dataset does not override ``evaluate``."""
        super()._check_arguments(runner, dataset)
        metric = self.eval_kwargs.get("metric", "accuracy")
        if getattr(type(dataset), "evaluate", None) is not BaseDataset.evaluate:
            return
        names = [metric] if isinstance(metric, str) else list(metric)
        check_metrics(names, at=evaluation.place_of(runner, "metric"))
        if self.key_indicator == "auto" and names:
            self.require_rule(runner, names[0])


class DistEvalHook(EvalHook, evaluation.DistEvalHook):
    """MMClassification's evaluation hook for several processes."""


@HOOKS.register_module()
class DistOptimizerHook(OptimizerHook):
    """The default optimizer hook of distributed runs. As in MMClassification, it does not log the gradient norm."""

    def __init__(
        self, grad_clip: dict[str, Any] | None = None, coalesce: bool = True, bucket_size_mb: int = -1
    ) -> None:
        super().__init__(grad_clip)
        self.coalesce, self.bucket_size_mb = coalesce, bucket_size_mb

    def after_train_iter(self, runner: BaseRunner) -> None:
        runner.optimizer.zero_grad()
        loss_of(runner).backward()
        if self.grad_clip is not None:
            self.clip_grads(runner.model.parameters())
        runner.optimizer.step()
