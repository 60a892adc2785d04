"""Builds and trains with Étude's own parts of MMClassification and MMTracking, where neither is installed."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from etude.dialects.mmcv1 import tracking
from etude.dialects.mmcv1.live.projects import data, models, train
from etude.dialects.mmcv1.live.runner.wiring import Wired
from etude.dialects.mmcv1.live.utils import environment


@dataclass
class StandIns:
    """How the parts of one project are built."""

    name: str
    title: str
    version: str
    build_model: Callable[[Any], Any]
    build_dataset: Callable[[Any], Any]
    wiring: type[train.Wiring]
    root_logger: Callable[..., logging.Logger]

    setup_multi_processes = staticmethod(environment.setup_multi_processes)

    def open(self, logger: logging.Logger, cfg: Any, distributed: bool, *, deterministic: bool) -> dict[str, Any]:
        """Log what the script logs before it builds anything, set the seed, and return a run's ``meta`` of that."""
        info = environment.say_environment(logger, cfg, project=(self.title, self.version), distributed=distributed)
        environment.seed_all(logger, cfg, deterministic=deterministic or bool(cfg.get("deterministic")))
        cfg["device"] = cfg.get("device") or train.auto_select_device()
        text = environment.public(cfg).pretty_text
        return {"env_info": info, "seed": cfg["seed"], f"{self.name}_version": self.version, "config": text}

    def model(self, cfg: Any) -> Any:
        return self.build_model(tracking.trained_model(cfg) if self.name == "mmtrack" else cfg["model"])

    def datasets(self, cfg: Any) -> list[Any]:
        """For training, and for a validation entry of the workflow the val split with the training pipeline."""
        found = [self.build_dataset(cfg["data"]["train"])]
        if len(cfg.get("workflow", [None])) == 2:
            val = copy.deepcopy(cfg["data"]["val"])
            if "pipeline" in cfg["data"]["train"]:
                val["pipeline"] = cfg["data"]["train"]["pipeline"]
            found.append(self.build_dataset(val))
        return found

    def label(self, model: Any, cfg: Any, meta: Mapping[str, Any], dataset: Any) -> None:
        """MMTracking's checkpoints say by themselves what they are."""
        if self.name != "mmtrack":
            return
        if isinstance(cfg.get("checkpoint_config"), dict):
            cfg["checkpoint_config"]["meta"] = {
                key: meta[key] for key in ("mmtrack_version", "config", "CLASSES") if key in meta
            }
        with suppress(AttributeError):
            model.CLASSES = dataset.CLASSES

    def wire(
        self,
        model: Any,
        datasets: list[Any],
        cfg: Any,
        *,
        distributed: bool,
        validate: bool,
        timestamp: str,
        meta: dict[str, Any],
    ) -> Wired:
        """Make everything of a run but the resume and the run itself."""
        return self.wiring(cfg, distributed).wire(model, datasets, validate=validate, timestamp=timestamp, meta=meta)


CLASSIFICATION = StandIns(
    "mmcls",
    "MMClassification",
    environment.MMCLS_VERSION,
    models.build_model,
    data.build_dataset,
    train.Classification,
    train.get_root_logger,
)
TRACKING = StandIns(
    "mmtrack",
    "MMTracking",
    environment.MMTRACK_VERSION,
    models.build_track_model,
    data.build_track_dataset,
    train.Tracking,
    train.get_track_logger,
)


def project_for(cfg: Any, imported: Iterable[Any]) -> StandIns:
    """MMTracking's when the config says so by a key or by what it imports, else MMClassification's."""
    kind = cfg.get("model", {}).get("type")
    only_there = kind in models.TRACK_MODELS.module_dict and kind not in models.MODELS.module_dict
    return TRACKING if only_there or tracking.is_tracking(cfg, imported) else CLASSIFICATION
