"""Training as mmtracking's ``train_model`` wires it."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

from etude.dialects.mmcv1.live.checks import ConfigKeyError
from etude.dialects.mmcv1.live.hooks.small_hooks import DistSamplerSeedHook
from etude.dialects.mmcv1.live.mmcls.train import wrap_distributed_model
from etude.dialects.mmcv1.live.mmtrack import siamese  # noqa: F401  registers hooks
from etude.dialects.mmcv1.live.mmtrack.data import build_dataloader, build_dataset
from etude.dialects.mmcv1.live.mmtrack.hooks import DistEvalHook, EvalHook
from etude.dialects.mmcv1.live.optimizers import build_optimizer
from etude.dialects.mmcv1.live.parallel import MMDataParallel
from etude.dialects.mmcv1.live.runner import runners
from etude.dialects.mmcv1.live.runner.epoch_runner import EpochBasedRunner
from etude.dialects.mmcv1.live.runner.wiring import Wired, begin, hand_over, present, validation_of
from etude.dialects.mmcv1.live.utils.seeding import init_random_seed
from etude.dialects.mmcv1.tracking import trains_a_part
from etude.dialects.openmm.logging_v1 import get_logger

__all__ = ["get_root_logger", "init_random_seed", "train_model", "wire"]


def get_root_logger(log_file: Any = None, log_level: int | str = logging.INFO) -> logging.Logger:
    return get_logger("mmtrack", log_file, log_level)


def train_model(
    model: nn.Module,
    dataset: Any,
    cfg: Any,
    distributed: bool = False,
    validate: bool = False,
    timestamp: str | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """Train ``model`` for ``cfg.total_epochs`` on ``dataset`` (or one per entry of the workflow)."""
    wired = wire(model, dataset, cfg, distributed, validate, timestamp, meta=meta)
    begin(wired, cfg)
    wired.run()


def wire(
    model: nn.Module,
    dataset: Any,
    cfg: Any,
    distributed: bool = False,
    validate: bool = False,
    timestamp: str | None = None,
    device: str | None = None,
    meta: dict[str, Any] | None = None,
) -> Wired:
    """Everything of a run but the resume and the run itself."""
    datasets = list(dataset) if isinstance(dataset, list | tuple) else [dataset]
    loaders = [_loader(one, cfg, distributed, cfg.get("samples_per_epoch")) for one in datasets]
    wrapped = _wrapped(model, cfg, distributed)
    parts = {
        "model": wrapped,
        "optimizer": build_optimizer(wrapped, present(cfg, "optimizer")),
        "work_dir": cfg.get("work_dir"),
        "logger": get_root_logger(log_level=cfg.get("log_level", "INFO")),
        "meta": meta,
    }
    if trains_a_part(cfg) and cfg.get("runner"):
        runner: Any = runners.build_runner(cfg["runner"], default_args={"batch_processor": None, **parts})
        length: dict[str, Any] = {}
    else:
        runner, length = EpochBasedRunner(**parts), {"max_epochs": _epochs(cfg)}
    hand_over(runner, timestamp)
    _register(runner, cfg, distributed, validate)
    return Wired(runner, loaders, cfg.get("workflow", [("train", 1)]), length)


def _epochs(cfg: Any) -> Any:
    """``total_epochs``; a config that has only ``runner`` means that."""
    length = (cfg.get("runner") or {}).get("max_epochs")
    if cfg.get("total_epochs") is None and not length:
        raise ConfigKeyError("the config has no `total_epochs`", hint="write total_epochs = 12")
    return cfg["total_epochs"] if cfg.get("total_epochs") is not None else length


def _loader(dataset: Any, cfg: Any, distributed: bool, samples_per_epoch: int | None = None) -> Any:
    data = cfg["data"]
    return build_dataloader(
        dataset,
        data.get("samples_per_gpu", data.get("imgs_per_gpu", 1)),
        data.get("workers_per_gpu", 0),
        num_gpus=len(cfg.get("gpu_ids") or [0]),
        samples_per_epoch=samples_per_epoch,
        dist=distributed,
        seed=cfg.get("seed"),
        persistent_workers=data.get("persistent_workers", False),
    )


def _wrapped(model: nn.Module, cfg: Any, distributed: bool) -> nn.Module:
    """Always wrapped: hooks of mmtracking look for ``runner.model.module``."""
    if distributed:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return wrap_distributed_model(model, device, find_unused_parameters=cfg.get("find_unused_parameters", False))
    if torch.cuda.is_available():
        return MMDataParallel(model.cuda(), device_ids=list(cfg.get("gpu_ids") or [0]))
    return MMDataParallel(model)


def _register(runner: Any, cfg: Any, distributed: bool, validate: bool) -> None:
    runner.register_training_hooks(
        present(cfg, "lr_config"),
        _optimizer_config(cfg, distributed),
        present(cfg, "checkpoint_config"),
        present(cfg, "log_config"),
        cfg.get("momentum_config"),
    )
    if distributed:
        runner.register_hook(DistSamplerSeedHook())
    if validate:
        dataset = build_dataset(validation_of(cfg), {"test_mode": True})
        loader = build_dataloader(dataset, 1, cfg["data"].get("workers_per_gpu", 0), dist=distributed, shuffle=False)
        hook, evaluation = DistEvalHook if distributed else EvalHook, dict(cfg.get("evaluation") or {})
        if trains_a_part(cfg) and cfg.get("runner"):
            evaluation["by_epoch"] = cfg["runner"]["type"] != "IterBasedRunner"
        runner.register_hook(hook(loader, **evaluation), priority="LOW" if trains_a_part(cfg) else "NORMAL")
    custom = cfg.get("custom_hooks")
    if custom:
        if not isinstance(custom, list):
            raise AssertionError(f"custom_hooks expect list type, but got {type(custom)}")
        for one in custom:
            if not isinstance(one, dict):
                raise AssertionError(f"Each item in custom_hooks expects dict type, but got {type(one)}")
            runner.register_hook_from_cfg(one)


def _optimizer_config(cfg: Any, distributed: bool) -> Any:
    given = present(cfg, "optimizer_config")
    if given is None or not isinstance(given, dict):
        return given
    fp16 = cfg.get("fp16")
    given.setdefault("type", "Fp16OptimizerHook" if fp16 is not None else "OptimizerHook")
    if fp16 is not None:
        given.update(fp16)
    if "Fp16" in given["type"]:
        given.update(distributed=distributed)
    return given
