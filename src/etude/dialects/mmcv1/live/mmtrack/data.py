"""Registries and builders of MMTracking's models and data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch.utils.data import ConcatDataset, DataLoader

from etude.dialects.mmcv1.live.mmcls import data as mmcls_data
from etude.dialects.mmcv1.live.models_registry import MODELS as MMCV_MODELS
from etude.dialects.openmm.registries.registry_v1 import Registry, build_from_cfg

MODELS = Registry("models", parent=MMCV_MODELS, scope="mmtrack")
TRACKERS = MOTION = REID = AGGREGATORS = MODELS


def build_tracker(cfg: Any) -> Any:
    return TRACKERS.build(cfg)


def build_motion(cfg: Any) -> Any:
    return MOTION.build(cfg)


def build_reid(cfg: Any) -> Any:
    return REID.build(cfg)


def build_aggregator(cfg: Any) -> Any:
    return AGGREGATORS.build(cfg)


def build_model(cfg: Any, train_cfg: Any = None, test_cfg: Any = None) -> Any:
    """A model; settings for training and tests belong into its config."""
    if train_cfg is None and test_cfg is None:
        return MODELS.build(cfg)
    warnings.warn("train_cfg and test_cfg outside the model are deprecated", stacklevel=2)
    return MODELS.build(cfg, default_args={"train_cfg": train_cfg, "test_cfg": test_cfg})


DATASETS = Registry("dataset", scope="mmtrack")
PIPELINES = Registry("pipeline", scope="mmtrack")


def build_dataset(cfg: Any, default_args: Mapping[str, Any] | None = None) -> Any:
    """One dataset, or several joined from a list."""
    if isinstance(cfg, list | tuple):
        return ConcatDataset([build_dataset(one, default_args) for one in cfg])
    return build_from_cfg(cfg, DATASETS, default_args)


def build_dataloader(
    dataset: Any,
    samples_per_gpu: int,
    workers_per_gpu: int,
    num_gpus: int = 1,
    samples_per_epoch: int | None = None,
    dist: bool = True,
    shuffle: bool = True,
    seed: int | None = None,
    persistent_workers: bool = False,
    **kwargs: Any,
) -> DataLoader[Any]:
    """A loader of torch; ``imgs_per_gpu`` is the old name of ``samples_per_gpu``."""
    if samples_per_epoch is not None:
        warnings.warn("samples_per_epoch is not served: an epoch is one pass over the data", stacklevel=2)
    return mmcls_data.build_dataloader(
        dataset,
        samples_per_gpu,
        workers_per_gpu,
        num_gpus=num_gpus,
        dist=dist,
        shuffle=shuffle,
        seed=seed,
        persistent_workers=persistent_workers,
        **kwargs,
    )
