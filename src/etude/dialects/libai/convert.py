"""A LiBai config as a native one that trains the same weights, where the native form can say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from etude.config.tree import Path, Tree
from etude.dialects.libai import convert_detectron2
from etude.dialects.libai import lower as lowering
from etude.dialects.libai.checks.yaml_values import plain, resolved
from etude.errors import ConfigError, Finding

#: Builders whose data can be said natively, and what of them is said or set by the trainer.
_LOADERS = ("build_nlp_train_loader", "build_image_train_loader")
_TAKEN = (
    "_target_", "dataset", "num_workers", "sampler", "mixup_func", "collate_fn", "dataset_mixer", "train_batch_size",
    "test_batch_size", "seed", "consumed_samples",
)  # fmt: skip
PARTS = ("etude.dialects.libai.live.native", "etude.dialects.libai.live.events.notebook")


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """The native config, and notes on what it leaves out. Raises for what cannot be said without changing a result."""
    tree = resolved(tree)
    if lowering.is_detectron2(tree.values):
        return convert_detectron2.convert(tree)
    plan = lowering.lower(tree)
    _require_convertible(tree)
    steps = int(tree.get("train", "num_accumulation_steps") or 1)
    iterations = int(tree.get("train", "train_iter")) * steps
    graph = bool(tree.get("graph", "enabled", default=True))
    warmup = math.ceil(int(tree.get("train", "train_iter")) * tree.get("train", "warmup_ratio", default=0)) * steps
    schedule = {**plain(tree, ("train", "scheduler")), "warmup_iter": warmup, "max_iter": iterations}
    config = {
        "name": plan.name,
        "imports": [*PARTS],
        "model": {"type": "libai.Model", "config": _model(tree)},
        "data": {"train": _data(tree)},
        "optim": {"type": "libai.Optimizer", "config": plain(tree, ("optim",))},
        "update": {"type": "libai.Eager", "micro_batches": steps},
        "hooks": [{"type": "libai.Storage"}, {"type": "libai.Schedule", "config": schedule}],
        "train": {"steps": iterations, "seed": plan.train.seed, **({"compile": True} if graph else {})},
        "log": {"every": f"{int(tree.get('train', 'log_period', default=20))}step"},
        "checkpoint": _checkpoint(tree),
    }
    if tree.get("train", "load_weight"):
        config["init_from"] = f"{tree.get('train', 'load_weight')}/model"
    return config, _notes(tree)


def _model(tree: Tree) -> dict[str, Any]:
    """The model as the default trainer makes it: ``amp_enabled`` is switched off where the model has it."""
    model: dict[str, Any] = plain(tree, ("model",))
    inner = model.get("cfg")
    target = inner if isinstance(inner, dict) and inner.get("amp_enabled") is not None else model
    if target.get("amp_enabled") is not None:
        target["amp_enabled"] = False
    return model


def _datasets(tree: Tree) -> Any:
    """The data sets as the default trainer makes them: a ``seed`` that one has becomes that of the training."""
    given = plain(tree, ("dataloader", "train", "dataset"))
    for dataset in given if isinstance(given, list) else [given]:
        if isinstance(dataset, dict) and "seed" in dataset:
            dataset["seed"] = int(tree.get("train", "seed"))
    return given


def _data(tree: Tree) -> dict[str, Any]:
    loader = tree.get("dataloader", "train")
    size = int(tree.get("train", "train_micro_batch_size"))
    sampler = loader.get("sampler")
    shuffle = bool(sampler.get("shuffle", False)) if isinstance(sampler, Mapping) else True
    dataset: dict[str, Any] = {"type": "libai.Dataset", "config": _datasets(tree)}
    collate: dict[str, Any] = {}
    if loader.get("dataset_mixer") is not None:
        dataset["mixer"] = plain(tree, ("dataloader", "train", "dataset_mixer"))
    if loader.get("collate_fn") is not None:
        dataset["whole"] = True
        way = ("dataloader", "train", "collate_fn")
        collate["collate"] = {"type": "libai.Collate", "function": plain(tree, way)}
    return {
        "dataset": dataset,
        **collate,
        "batch_size": size,
        "workers": int(loader.get("num_workers", 4)),
        "sampler": {
            "type": "libai.Cyclic",
            "micro_batch_size": size,
            "shuffle": shuffle,
            "seed": int(tree.get("train", "seed")),
        },
        "drop_last": True,
    }


def _checkpoint(tree: Tree) -> dict[str, Any]:
    given = tree.get("train", "checkpointer", default={})
    return {"every": f"{int(given.get('period', 5000))}step", "keep": given.get("max_to_keep")}


def _require_convertible(tree: Tree) -> None:
    """Everything that has no native counterpart with the same result, at once."""
    steps = tree.get("train", "num_accumulation_steps") or 1
    loader, sampler = tree.get("dataloader", "train") or {}, tree.get("dataloader", "train", "sampler")
    drawn_by = lowering.target_name(sampler.get("_target_", "")) if isinstance(sampler, Mapping) else ""
    doubts: list[tuple[bool, Path, str, str]] = [
        (
            bool(tree.get("train", "train_epoch")),
            ("train", "train_epoch"),
            "train.train_epoch counts by the length of the data, which is not known here",
            "say train.train_iter and train.train_epoch=0",
        ),
        (
            bool(tree.get("graph", "enabled", default=True)) and steps > 1,
            ("train", "num_accumulation_steps"),
            "graph mode with accumulation counts whole batches, the native form single ones",
            "convert with graph.enabled=False",
        ),
        (
            bool(tree.get("train", "scheduler", "milestones")),
            ("train", "scheduler", "milestones"),
            "milestones are shares of a length that is computed later",
            "",
        ),
        (
            bool(tree.get("train", "amp", "enabled", default=False)),
            ("train", "amp"),
            "LiBai's mixed precision has a scaler of its own",
            "convert with train.amp.enabled=False and set train.precision",
        ),
        (tree.get("tokenization") is not None, ("tokenization",), "a tokenizer is made before the data", ""),
        (
            tree.get("train", "train_micro_batch_size") is None,
            ("train", "train_micro_batch_size"),
            "the batch size depends on the number of processes",
            "say train.train_micro_batch_size",
        ),
        (
            tree.get("dataloader", "train", "mixup_func") is not None,
            ("dataloader", "train", "mixup_func"),
            "mixup acts on batches, for which the native form has no place",
            "",
        ),
        (
            not lowering.is_served(loader.get("_target_", ""), _LOADERS),
            ("dataloader", "train"),
            f"only {' and '.join(_LOADERS)} have a native counterpart",
            "",
        ),
        (
            sampler is not None and not lowering.is_served(drawn_by, ("CyclicSampler",)),
            ("dataloader", "train", "sampler"),
            "only the order of CyclicSampler has a native counterpart",
            "",
        ),
    ]
    findings = [Finding(str(tree.place(*way)), text, hint) for wrong, way, text, hint in doubts if wrong]
    if findings:
        raise ConfigError(findings)


def _notes(tree: Tree) -> list[str]:
    notes = ["evaluation and the best checkpoint are left out: LiBai's evaluators are not native metrics"]
    notes.append("what a sample draws at random depends on seed, epoch and index in the native form, not on the order")
    left = [key for key in tree.get("dataloader", "train", default={}) if key not in _TAKEN]
    if left:
        notes.append(f"{', '.join(left)} of the loader is left out: it changes no result")
    if tree.get("graph", "enabled", default=True):
        notes.append("the native form compiles with the compiler's own random numbers: dropout draws others")
    if tree.get("train", "dist", "data_parallel_size", default=1) not in (None, 1):
        notes.append("the number of processes is said when they are started")
    return notes
