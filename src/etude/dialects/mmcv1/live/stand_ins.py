"""Builds and trains with Étude's own parts of MMClassification and MMTracking, where neither is installed."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from etude.dialects.mmcv1 import tracking
from etude.dialects.mmcv1.live.mmcls import data as mmcls_data
from etude.dialects.mmcv1.live.mmcls import models as mmcls_models
from etude.dialects.mmcv1.live.mmcls import train as mmcls_train
from etude.dialects.mmcv1.live.mmtrack import data as mmtrack_data
from etude.dialects.mmcv1.live.mmtrack import train as mmtrack_train
from etude.dialects.mmcv1.live.utils import environment
from etude.dialects.mmcv1.live.utils import start_log as opening


class StandIns:
    """How the parts of one project are built."""

    def __init__(self, name: str, title: str, version: str, model: Any, dataset: Any, train: Any) -> None:
        self.name, self.title, self.version = name, title, version
        self.build_model, self.build_dataset = model, dataset
        self.wire, self.root_logger = train.wire, train.get_root_logger
        self.setup_multi_processes = environment.setup_multi_processes

    def open(self, logger: logging.Logger, cfg: Any, distributed: bool, *, deterministic: bool) -> dict[str, Any]:
        """Log what the script logs before it builds anything, set the seed, and return a run's ``meta`` of that."""
        info = opening.say_environment(logger, cfg, project=(self.title, self.version), distributed=distributed)
        opening.seed_all(logger, cfg, deterministic=deterministic or bool(cfg.get("deterministic")))
        cfg["device"] = cfg.get("device") or mmcls_train.auto_select_device()
        text = opening.public(cfg).pretty_text
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


def project_for(cfg: Any, imported: Iterable[Any]) -> StandIns:
    """MMTracking's when the config says so by a key or by what it imports, else MMClassification's."""
    tracks = tracking.is_tracking(cfg, imported)
    kind = cfg.get("model", {}).get("type")
    only_there = kind in mmtrack_data.MODELS.module_dict and kind not in mmcls_models.MODELS.module_dict
    if tracks or only_there:
        return StandIns(
            "mmtrack",
            "MMTracking",
            environment.MMTRACK_VERSION,
            mmtrack_data.build_model,
            mmtrack_data.build_dataset,
            mmtrack_train,
        )
    return StandIns(
        "mmcls",
        "MMClassification",
        environment.MMCLS_VERSION,
        mmcls_models.build_classifier,
        mmcls_data.build_dataset,
        mmcls_train,
    )
