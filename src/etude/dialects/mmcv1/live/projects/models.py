"""The registries in which MMClassification and MMTracking look for models; the networks come with the projects."""

from __future__ import annotations

import warnings
from typing import Any

from etude.dialects.mmcv1.live.optimizers import OPTIMIZERS
from etude.dialects.mmcv1.live.overlay.registries import MODELS as MMCV_MODELS
from etude.dialects.openmm.registries.registry_v1 import Registry
from etude.optim.lamb import LAMB

MODELS = Registry("models", parent=MMCV_MODELS, scope="mmcls")
BACKBONES = NECKS = HEADS = LOSSES = CLASSIFIERS = MODELS
ATTENTION = Registry("attention", scope="mmcls")
TRACK_MODELS = Registry("models", parent=MMCV_MODELS, scope="mmtrack")
TRACKERS = MOTION = REID = AGGREGATORS = TRACK_MODELS

OPTIMIZERS.register_module(name="Lamb", module=LAMB, force=True)


def build_model(cfg: Any) -> Any:
    """Build a classifier or a part of one; ``build_backbone`` and the others of mmcls are this."""
    return MODELS.build(cfg)


def build_track_model(cfg: Any, train_cfg: Any = None, test_cfg: Any = None) -> Any:
    """Build a tracker or a part of one; settings for training and tests belong into its config."""
    if train_cfg is None and test_cfg is None:
        return TRACK_MODELS.build(cfg)
    warnings.warn("train_cfg and test_cfg outside the model are deprecated", stacklevel=2)
    return TRACK_MODELS.build(cfg, default_args={"train_cfg": train_cfg, "test_cfg": test_cfg})
