"""Training as mmclassification's ``tools/train.py`` and ``train_model`` wire it."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import torch
from torch import nn

from etude.dialects.mmcv1.live.hooks import detection_hooks
from etude.dialects.mmcv1.live.hooks.optimizer_hook import Fp16OptimizerHook
from etude.dialects.mmcv1.live.hooks.small_hooks import DistSamplerSeedHook
from etude.dialects.mmcv1.live.mmcls import wandb_hook
from etude.dialects.mmcv1.live.mmcls.data import build_dataloader, build_dataset
from etude.dialects.mmcv1.live.mmcls.hooks import DistEvalHook, DistOptimizerHook, EvalHook
from etude.dialects.mmcv1.live.optimizers import build_optimizer
from etude.dialects.mmcv1.live.parallel import MMDataParallel, MMDistributedDataParallel
from etude.dialects.mmcv1.live.runner import runners
from etude.dialects.mmcv1.live.runner.wiring import Wired, begin, hand_over, present, validation_of
from etude.dialects.mmcv1.live.utils.dist import get_dist_info
from etude.dialects.mmcv1.live.utils.seeding import init_random_seed
from etude.dialects.openmm.logging_v1 import get_logger

__all__ = [
    "auto_select_device", "get_root_logger", "init_random_seed", "train_model", "wire", "wrap_distributed_model",
    "wrap_non_distributed_model",
]  # fmt: skip

#: Modules whose hooks are in the registry because they are imported here.
REGISTERED = (detection_hooks, wandb_hook)
_SPLITS = ("train", "val", "test", "train_dataloader", "val_dataloader", "test_dataloader")


def get_root_logger(log_file: Any = None, log_level: int | str = logging.INFO) -> logging.Logger:
    return get_logger("mmcls", log_file, log_level)


def auto_select_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def wrap_non_distributed_model(
    model: nn.Module, device: str = "cuda", dim: int = 0, *args: Any, **kwargs: Any
) -> nn.Module:
    """On CUDA one device's wrapper; on the CPU the model as it is."""
    if device == "cuda":
        return MMDataParallel(model.cuda(), *args, dim=dim, **kwargs)
    return model.cpu() if device == "cpu" else model.to(device)


def wrap_distributed_model(model: nn.Module, device: str = "cuda", **kwargs: Any) -> nn.Module:
    """The wrapper that averages gradients over all ranks."""
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
    """Train ``model`` on ``dataset`` (or one per entry of the workflow) as ``cfg`` says."""
    wired = wire(model, dataset, cfg, distributed, validate, timestamp, device, meta)
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
    common = _loader_settings(cfg, distributed)
    settings = {**common, **cfg["data"].get("train_dataloader", {})}
    loaders = [build_dataloader(one, **settings) for one in datasets]
    wrapped = _wrapped(model, cfg, distributed, device or cfg.get("device") or auto_select_device())
    if cfg.get("runner") is None:
        cfg["runner"] = {"type": "EpochBasedRunner", "max_epochs": present(cfg, "total_epochs", "runner")}
        warnings.warn(
            "config is now expected to have a `runner` section, please set `runner` in your config.", stacklevel=2
        )
    runner = runners.build_runner(
        cfg["runner"],
        default_args={
            "model": wrapped,
            "batch_processor": None,
            "optimizer": build_optimizer(wrapped, present(cfg, "optimizer")),
            "work_dir": cfg.get("work_dir"),
            "logger": get_root_logger(log_level=cfg.get("log_level", "INFO")),
            "meta": meta,
        },
    )
    hand_over(runner, timestamp)
    _register(runner, cfg, distributed)
    if validate:
        _register_evaluation(runner, cfg, common, distributed)
    return Wired(runner, loaders, cfg.get("workflow", [("train", 1)]))


def _loader_settings(cfg: Any, distributed: bool) -> dict[str, Any]:
    found = {
        "num_gpus": len(cfg.get("gpu_ids") or [0]),
        "dist": distributed,
        "round_up": True,
        "seed": cfg.get("seed"),
        "sampler_cfg": cfg.get("sampler"),
    }
    return found | {key: value for key, value in cfg["data"].items() if key not in _SPLITS}


def _wrapped(model: nn.Module, cfg: Any, distributed: bool, device: str) -> nn.Module:
    if distributed:
        unused = cfg.get("find_unused_parameters", False)
        return wrap_distributed_model(model, device, find_unused_parameters=unused)
    return wrap_non_distributed_model(model, device, **({"device_ids": cfg.get("gpu_ids")} if device == "cuda" else {}))


def _register(runner: Any, cfg: Any, distributed: bool) -> None:
    optimizer_config: Any = present(cfg, "optimizer_config")
    fp16 = cfg.get("fp16")
    if fp16 is not None:
        optimizer_config = Fp16OptimizerHook(
            **(optimizer_config or {}), loss_scale=fp16["loss_scale"], distributed=distributed
        )
    elif distributed and optimizer_config is not None and "type" not in optimizer_config:
        optimizer_config = DistOptimizerHook(**optimizer_config)
    runner.register_training_hooks(
        present(cfg, "lr_config"),
        optimizer_config,
        present(cfg, "checkpoint_config"),
        present(cfg, "log_config"),
        cfg.get("momentum_config"),
        custom_hooks_config=cfg.get("custom_hooks"),
    )
    if distributed and cfg["runner"]["type"] == "EpochBasedRunner":
        runner.register_hook(DistSamplerSeedHook())


def _register_evaluation(runner: Any, cfg: Any, common: dict[str, Any], distributed: bool) -> None:
    settings = {**common, "shuffle": False, "sampler_cfg": None, "drop_last": False}
    settings |= cfg["data"].get("val_dataloader", {})
    loader = build_dataloader(build_dataset(validation_of(cfg), {"test_mode": True}), **settings)
    evaluation = dict(cfg.get("evaluation") or {})
    evaluation["by_epoch"] = cfg["runner"]["type"] != "IterBasedRunner"
    hook = DistEvalHook if distributed or get_dist_info()[1] > 1 else EvalHook
    runner.register_hook(hook(loader, **evaluation), priority="LOW")
