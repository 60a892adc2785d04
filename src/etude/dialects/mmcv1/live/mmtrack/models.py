"""Registries and builders of mmtracking's models."""

from __future__ import annotations

import warnings
from typing import Any

from etude.dialects.mmcv1.live.models_registry import MODELS as MMCV_MODELS
from etude.dialects.openmm.registries.registry_v1 import Registry

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
