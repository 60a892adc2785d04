"""Drafts a native config from one of McQuic; see :mod:`etude.dialects.draft`."""

from __future__ import annotations

from etude.config.tree import Tree
from etude.dialects.draft import Draft
from etude_mcquic.config import Config
from etude_mcquic.lower import lower, registered

#: Keys of McQuic's registry → native names.
_OPTIMIZERS = {"Lamb": "LAMB", "Adam": "Adam"}
_PATHS = {"train": ("train", "trainSet"), "val": ("train", "valSet")}


def convert(tree: Tree) -> Draft:
    """Return the draft."""
    plan, optim = lower(tree), Config.deserialize(tree.values).Train.Optim
    draft = Draft(tree, plan.name, marks=("key",))
    key = str(draft.take("model", "key"))
    if libraries := draft.take("train", "externalLib"):
        draft.config["imports"] = list(libraries)
    draft.config["model"] = {"type": "", **draft.component("model", "params", target="")}
    draft.config["model"]["type"] = _dotted(tree, "model", key)
    draft.config["folder"] = draft.take("train", "saveDir")
    draft.notes.append("model: McQuic's loss is of the whole compressor; return it from your model's forward")
    draft.notes.append("data: write a dataset that opens and crops the images of these folders")
    for split, path in _PATHS.items():
        loader = {"dataset": {"type": "Images", "path": draft.take(*path)}}
        draft.put("data", **{split: loader | ({"shuffle": True} if split == "train" else {})})
    draft.config["data"]["train"]["batch_size"] = draft.take("train", "batchSize")
    name = str(draft.take("train", "optim", "key"))
    draft.take("train", "optim", "params")
    draft.config["optim"] = {"type": _OPTIMIZERS.get(name) or _dotted(tree, "OptimizerRegistry", name), **optim.Params}
    if optim.Params.get("lr") != tree.get("train", "optim", "params", "lr"):
        draft.notes.append("optim: lr is the configured one times sqrt(batchSize · gpus) / 8, as McQuic scales it")
    draft.take("train", "epoch")
    draft.put("train", epochs=plan.train.epochs, seed=plan.train.seed, validate=f"{draft.take('train', 'valFreq')}ep")
    draft.put("checkpoint", every=draft.config["train"]["validate"])
    return draft


def _dotted(tree: Tree, registry: str, key: str) -> str:
    """Return the dotted path of a class in an external library; its key if it is McQuic's own."""
    target = registered(tree).get(registry, {}).get(key, "")
    return "" if not target else key if target.startswith(__name__.partition(".")[0]) else target.replace(":", ".")
