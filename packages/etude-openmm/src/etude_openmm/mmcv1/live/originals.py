"""Builds models and runners with the functions of an installed MMClassification, MMDetection or MMTracking.

The calls and their order are those of the project's ``tools/train.py``, so that both give the same bits. The training
function runs up to ``runner.run``, which Étude calls later.
"""

from __future__ import annotations

import copy
import importlib
import logging
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from etude.dialects import ownership
from etude.errors import EtudeError, UserError
from etude.errors.advice import install_hint, release_hint
from etude_openmm.mmcv1 import tracking
from etude_openmm.mmcv1.live.runner.wiring import Wired, held_back
from etude_openmm.mmcv1.live.utils import environment
from etude_openmm.mmcv1.projects import Project


class Scripts:
    """The common steps of the projects' train scripts. Subclasses build the parts."""

    name: str
    title: str
    version: str
    build_dataset: Callable[[Any], Any]

    def device(self) -> str:
        """Return the type of device to train on."""
        raise NotImplementedError

    def open(self, logger: logging.Logger, cfg: Any, distributed: bool, *, deterministic: bool) -> dict[str, Any]:
        """Log what the script logs before it builds anything, set the seed, and return the ``meta`` of the run."""
        info = environment.say_environment(logger, cfg, project=(self.title, self.version), distributed=distributed)
        deterministic = deterministic or bool(cfg.get("deterministic"))
        environment.seed_all(logger, cfg, deterministic=deterministic)
        cfg["device"] = cfg.get("device") or self.device()
        text = environment.public(cfg).pretty_text
        return {"env_info": info, "seed": cfg["seed"], f"{self.name}_version": self.version, "config": text}

    def datasets(self, cfg: Any) -> list[Any]:
        """Build the training data and, if the workflow validates, the val split with the training pipeline."""
        train, found = cfg["data"]["train"], [self.build_dataset(cfg["data"]["train"])]
        # The scripts count entries: a workflow of three gets no val split, and the runner refuses it.
        if len(cfg.get("workflow") or [None]) == 2:
            val = copy.deepcopy(cfg["data"]["val"])
            inner = train.get("dataset") if isinstance(train, Mapping) else None
            pipeline = train.get("pipeline", (inner or {}).get("pipeline"))
            if pipeline is not None:
                val["pipeline"] = pipeline
            found.append(self.build_dataset(val))
        return found

    def label(self, model: Any, cfg: Any, meta: Mapping[str, Any], dataset: Any) -> None:
        """Put version, config and classes into checkpoints of MMDetection and MMTracking, as their scripts do."""
        if self.name == "mmcls":
            return
        if isinstance(cfg.get("checkpoint_config"), dict):
            keys = (f"{self.name}_version", "config", "CLASSES")
            cfg["checkpoint_config"]["meta"] = {key: meta[key] for key in keys if key in meta}
        model.CLASSES = getattr(dataset, "CLASSES", None)


class Original(Scripts):
    """Uses the functions of an installed project."""

    def __init__(self, project: Project) -> None:
        self.name, self.title = project.package, project.title
        self.package = imported(project.package)
        self.version = self.package.__version__
        self.utils = imported(f"{self.name}.utils")
        self.build_dataset = imported(f"{self.name}.datasets").build_dataset
        self.root_logger = self.utils.get_root_logger
        home = imported("mmtrack.core") if self.name == "mmtrack" else self.utils
        self.setup_multi_processes = home.setup_multi_processes

    def device(self) -> str:
        return str(imported("mmcv.device").get_device())

    def model(self, cfg: Any) -> Any:
        """Build the model, or the part of it that an MMTracking config trains alone."""
        models = imported(f"{self.name}.models")
        if self.name == "mmcls":
            return models.build_classifier(cfg["model"])
        cfg["model"] = tracking.trained_model(cfg)
        if self.name == "mmdet" or cfg.get("USE_MMDET"):
            build = imported("mmdet.models").build_detector
        else:
            build = models.build_reid if cfg.get("TRAIN_REID") else models.build_model
        if self.name == "mmdet" or cfg.get("train_cfg"):
            return build(cfg["model"], train_cfg=cfg.get("train_cfg"), test_cfg=cfg.get("test_cfg"))
        return build(cfg["model"])

    def wire(self, model: Any, datasets: list[Any], cfg: Any, **options: Any) -> Wired:
        """Call the project's training function, and return the run that it was about to start."""
        cfg["auto_resume"], wanted = False, cfg.get("auto_resume")
        resume, load = cfg.get("resume_from"), cfg.get("load_from")
        cfg["resume_from"] = cfg["load_from"] = None  # Étude loads it later, and can name the place in its errors
        if self.name == "mmcls":
            options["device"] = cfg["device"]
        cfg.setdefault("workflow", [("train", 1)])
        with held_back() as runs:
            self._train(cfg)(model, datasets, cfg, **options)
        cfg["auto_resume"], cfg["resume_from"], cfg["load_from"] = wanted, resume, load
        return runs[-1]

    def _train(self, cfg: Any) -> Any:
        if self.name == "mmdet" or (self.name == "mmtrack" and tracking.trains_a_part(cfg)):
            return imported("mmdet.apis").train_detector
        return imported(f"{self.name}.apis").train_model


def imported(module: str) -> Any:
    """Import a module of a project. An error inside it is reported with its file and line."""
    try:
        return importlib.import_module(module)
    except EtudeError:
        raise
    except Exception as error:
        raise UserError(_import_message(module, error)) from error


def _import_message(module: str, error: Exception) -> str:
    folder = ownership.original(module.partition(".")[0]) or os.sep
    inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)]
    place = f"{inside[-1].filename}:{inside[-1].lineno}: " if inside else ""
    text = f"{place}importing {module} raised {type(error).__name__}: {error}"
    missing = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
    return f"{text}; {install_hint(missing)}" if missing else text + release_hint(str(error))
