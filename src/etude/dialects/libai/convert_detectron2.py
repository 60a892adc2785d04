"""A detectron2 lazy config as a native one that trains the same weights, where the native form can say it."""

from __future__ import annotations

from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects.libai import lower as lowering
from etude.dialects.libai.checks.yaml_values import plain
from etude.errors import ConfigError, Finding

PARTS = ("etude.dialects.libai.live.native", "etude.dialects.libai.live.events.notebook")
_LOADER = "build_detection_train_loader"
_TAKEN = ("_target_", "dataset", "mapper", "total_batch_size", "num_workers", "aspect_ratio_grouping")


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """The native config, and notes on what it leaves out. Raises for what cannot be said without changing a result."""
    plan = lowering.lower(tree)
    _require_convertible(tree)
    loader, steps = tree.get("dataloader", "train"), int(tree.get("train", "max_iter"))
    size = int(loader["total_batch_size"])
    seed = max(0, int(tree.get("train", "seed", default=-1)))
    checkpoints = tree.get("train", "checkpointer", default={})
    config = {
        "name": plan.name,
        "imports": [*PARTS],
        "model": {"type": "detectron2.Model", "config": plain(tree, ("model",))},
        "data": {
            "train": {
                "dataset": {
                    "type": "detectron2.Dataset",
                    "config": plain(tree, ("dataloader", "train", "dataset")),
                    "mapper": plain(tree, ("dataloader", "train", "mapper")),
                },
                "batch_size": size,
                "workers": int(loader.get("num_workers", 0)),
                "sampler": {"type": "detectron2.Training", "count": steps * size, "seed": seed},
                "collate": "detectron2.List",
            }
        },
        "optim": {"type": "detectron2.Optimizer", "config": plain(tree, ("optimizer",))},
        "update": {"type": "detectron2.Simple"},
        "hooks": [
            {"type": "detectron2.Storage"},
            {"type": "detectron2.Schedule", "config": plain(tree, ("lr_multiplier",)), "max_iter": steps},
        ],
        "train": {"steps": steps, "seed": seed},
        "log": {"every": f"{int(tree.get('train', 'log_period', default=20))}step"},
        "checkpoint": {"every": f"{int(checkpoints.get('period', 5000))}step", "keep": checkpoints.get("max_to_keep")},
    }
    if tree.get("train", "init_checkpoint"):
        config["init_from"] = tree.get("train", "init_checkpoint")
    return config, _notes(tree)


def _require_convertible(tree: Tree) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    loader = tree.get("dataloader", "train") or {}
    own = [key for key in loader if key not in _TAKEN]
    doubts: list[tuple[bool, Path, str, str]] = [
        (
            not lowering.is_served(loader.get("_target_", ""), (_LOADER,)),
            ("dataloader", "train"),
            f"only {_LOADER} has a native counterpart",
            "",
        ),
        (
            bool(loader.get("aspect_ratio_grouping", True)),
            ("dataloader", "train", "aspect_ratio_grouping"),
            "batches of one aspect ratio have no native counterpart",
            "convert with dataloader.train.aspect_ratio_grouping=False",
        ),
        (bool(own), ("dataloader", "train", *own[:1]), f"the loader's {', '.join(own)} cannot be said natively", ""),
        (
            bool(tree.get("train", "amp", "enabled", default=False)),
            ("train", "amp"),
            "detectron2's mixed precision has a scaler of its own",
            "convert with train.amp.enabled=False and set train.precision",
        ),
        (tree.get("lr_multiplier") is None, (), "the config has no lr_multiplier", ""),
    ]
    findings = [Finding(str(tree.place(*way)), text, hint) for wrong, way, text, hint in doubts if wrong]
    if findings:
        raise ConfigError(findings)


def _notes(tree: Tree) -> list[str]:
    notes = ["evaluation is left out: detectron2's evaluators are not native metrics"]
    notes.append("what the mapper and the model draw at random comes out otherwise: the native form seeds each sample")
    if int(tree.get("train", "seed", default=-1)) < 0:
        notes.append("train.seed is not set: detectron2 would take one by chance, the native config has 0")
    return notes
