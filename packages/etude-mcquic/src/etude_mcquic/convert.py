"""Converts a McQuic config to a native one that trains the same weights. Imports no torch."""

from __future__ import annotations

from typing import Any

from etude.config.tree import Tree
from etude.dialects.converting import Refusing
from etude_mcquic.config import Config
from etude_mcquic.lower import lower, registered
from etude_mcquic.names import REGISTERED

_NATIVE = "etude_mcquic.live.native"
#: Keys of McQuic's registry → native names.
OPTIMIZERS = {"Lamb": "LAMB", "Adam": "Adam"}


def convert(tree: Tree) -> tuple[dict[str, Any], list[str]]:
    """Return the native config, and notes about differences."""
    found = Refusing(tree, lower(tree))
    config, notes = Config.deserialize(tree.values), found.notes
    train = config.Train
    notes[:] = ["the weights are the same, bit by bit, on one process"]
    optim = train.Optim
    lr = optim.Params.get("lr")
    if lr is not None and lr != train.optim.params["lr"]:
        notes.append(f"lr is {lr:.6g}: the configured one times sqrt(batchSize · gpus) / 8, as McQuic scales it")
    for number, hook in enumerate(train.Hooks):
        if hook.Key not in REGISTERED["HookRegistry"]:
            found.refuse(("train", "hooks", number), f"{hook.Key}, a hook of your own,")
    notes.append("validation, the best checkpoint and pictures are left out: they change no weight")
    images = {"type": f"{_NATIVE}.Images", "path": train.TrainSet, "key": config.Model.Key, "at_least": train.BatchSize}
    curve = {"type": f"{_NATIVE}.PerEpoch", "key": train.Schdr.Key, "params": train.Schdr.Params, "base": lr or 1.0}
    native: dict[str, Any] = {
        "name": "mcquic",
        "folder": train.SaveDir,
        "imports": [_NATIVE, *train.ExternalLib],
        "model": {
            "type": f"{_NATIVE}.Compression",
            "target": train.Target,
            "key": config.Model.Key,
            "params": config.Model.Params,
        },
        "data": {"train": {"dataset": images, "batch_size": train.BatchSize, "shuffle": True}},
        "optim": {"type": _optimizer(tree, optim.Key), **optim.Params},
        "schedule": {"lr": [curve]},
        "train": {"epochs": train.Epoch, "seed": 3407},
        "checkpoint": {"every": f"{train.ValFreq}ep"},
        "hooks": [{"type": f"{_NATIVE}.Hook", "key": hook.Key, "params": hook.Params} for hook in train.Hooks],
    }
    if optim.Key in REGISTERED["OptimizerRegistry"]:
        native["optim"] |= {"fused": False, "foreach": False} if optim.Key == "Adam" else {}
    return found.finished(native)


def _optimizer(tree: Tree, key: str) -> str:
    """Return the native name, or the dotted path of a class in an external library."""
    target = registered(tree)["OptimizerRegistry"].get(key, "")
    return OPTIMIZERS.get(key) or target.replace(":", ".") or key
