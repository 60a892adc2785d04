"""Builds models and runners with Étude's stand-ins for MMClassification and MMTracking, if neither is installed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from etude_openmm.mmcv1 import tracking
from etude_openmm.mmcv1.live.originals import Scripts
from etude_openmm.mmcv1.live.projects import builders, train
from etude_openmm.mmcv1.live.runner.wiring import Wired
from etude_openmm.mmcv1.live.utils import environment


@dataclass
class StandIns(Scripts):
    """Builds the parts of a run for one project."""

    name: str
    title: str
    version: str
    build_model: Callable[[Any], Any]
    build_dataset: Callable[[Any], Any]
    wiring: type[train.Wiring]

    setup_multi_processes = staticmethod(environment.setup_multi_processes)

    def root_logger(self, log_level: Any) -> logging.Logger:
        return self.wiring.root_logger(log_level=log_level)

    def device(self) -> str:
        return train.auto_select_device()

    def model(self, cfg: Any) -> Any:
        return self.build_model(tracking.trained_model(cfg) if self.name == "mmtrack" else cfg["model"])

    def wire(self, model: Any, datasets: list[Any], cfg: Any, *, distributed: bool, **options: Any) -> Wired:
        """Build everything of a run, without resuming or running."""
        return self.wiring(cfg, distributed).wire(model, datasets, **options)


CLASSIFICATION = StandIns(
    "mmcls",
    "MMClassification",
    environment.MMCLS_VERSION,
    builders.build_model,
    builders.build_dataset,
    train.Classification,
)
TRACKING = StandIns(
    "mmtrack",
    "MMTracking",
    environment.MMTRACK_VERSION,
    builders.build_track_model,
    builders.build_track_dataset,
    train.Tracking,
)


def project_for(cfg: Any, imported: Iterable[Any]) -> StandIns:
    """Return MMTracking's stand-ins if keys, imports or the model point to it, else MMClassification's."""
    kind = cfg.get("model", {}).get("type")
    only_there = kind in builders.TRACK_MODELS.module_dict and kind not in builders.MODELS.module_dict
    return TRACKING if only_there or tracking.is_tracking(cfg, imported) else CLASSIFICATION
