"""Checks required keys, and keys that must hold a lazy call. Imports no torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.files import display
from etude.config.tree import Path, Tree, dotted
from etude.errors import Finding
from etude.errors.spelling import nearest, suggest
from etude.inspection.signatures import class_of
from etude_libai.lazy.extra import dict_config, omegaconf
from etude_libai.lazy.reading.sketches import Unread, as_text
from etude_libai.places import way_of
from etude_libai.schema import KEYS

#: The required sections of LiBai's and of detectron2's configs.
_LIBAI = ("model", "optim", "train", "dataloader", "graph")
_DETECTRON2 = ("model", "optimizer", "lr_multiplier", "train", "dataloader")
#: Keys of ``train`` that LiBai's trainer reads without asking whether they are there.
_OF_TRAIN = (
    "output_dir", "train_iter", "warmup_ratio", "seed", "log_period", "load_weight", "test_micro_batch_size",
    "checkpointer", "evaluation", "scheduler", "dist",
)  # fmt: skip
_CALLS: tuple[Path, ...] = (
    ("model",), ("optim",), ("optimizer",), ("optim", "params"), ("optimizer", "params"), ("lr_multiplier",),
    ("train", "scheduler"), ("train", "evaluation", "evaluator"), ("dataloader", "train"), ("dataloader", "evaluator"),
)  # fmt: skip
_NOT_THERE = re.compile(r"'([^']+)' not found")


def structure(tree: Tree) -> list[Finding]:
    """Return a finding for every missing key, and for every value that is no lazy call where one is needed."""
    return [*_missing(tree), *not_calls(tree), *not_loaders(tree), *_interpolations(tree)]


def is_detectron2(values: Mapping[str, Any]) -> bool:
    """Return whether a lazy config is detectron2's, which has ``optimizer`` in place of LiBai's ``optim``."""
    return "optimizer" in values and "optim" not in values


# -- what is missing ---------------------------------------------------------------------------------------------------


def _missing(tree: Tree) -> Iterator[Finding]:
    libai = not is_detectron2(tree.values)
    for name in _LIBAI if libai else _DETECTRON2:
        if tree.get(name) is None:
            yield _lacking(tree, name)
    train = tree.get("train")
    absent = [key for key in _OF_TRAIN if train.get(key) is None] if libai and isinstance(train, Mapping) else []
    if absent:
        near = [found for key in absent if (found := nearest(key, [k for k in train if k not in KEYS[("train",)]]))]
        hint = f"did you mean {near[0]!r}?" if near else 'begin with train = get_config("common/train.py").train'
        own = tree.place("train", absent[0])
        place = own if own.file.startswith("override") else tree.place("train")
        yield Finding(str(place), f"train has no {', '.join(absent)}", hint)

    evaluation = tree.get("train", "evaluation")
    looks = libai and isinstance(evaluation, Mapping) and evaluation.get("enabled", True) is True
    if looks and evaluation.get("evaluator") is None:
        hint = "write train.evaluation.evaluator = LazyCall(ClsEvaluator)(topk=(1, 5)), or set enabled=False"
        way = ("train", "evaluation", *(["evaluator"] if "evaluator" in evaluation else []))
        yield Finding(str(tree.place(*way)), "train.evaluation has no evaluator", hint)

    if libai and tree.get("train", "train_iter") == 0 and not tree.get("train", "train_epoch"):
        text = "nothing says how long to train: train.train_iter and train.train_epoch are 0"
        yield Finding(str(tree.place("train", "train_iter")), text)
    sizes = ("train_micro_batch_size", "global_batch_size")
    if libai and isinstance(train, Mapping) and all(train.get(key) is None for key in sizes):
        text = "nothing says how large a batch is: train.train_micro_batch_size and train.global_batch_size are None"
        yield Finding(str(tree.place("train", sizes[0])), text)


def _lacking(tree: Tree, name: str) -> Finding:
    if name in tree.values:
        return Finding(str(tree.place(name)), f"`{name}` is None")
    if (name,) in tree.places:
        text = f"`{name}` is neither a lazy call nor a mapping, and a config holds nothing else"
        return Finding(str(tree.place(name)), text, f"write {name} = LazyCall(…)(…): it is made when training begins")
    near = suggest(name, tree.values) if nearest(name, list(tree.values)) else ""
    return Finding(display(next(iter(tree.files), "")), f"the config has no `{name}`", near)


# -- what is a lazy call -----------------------------------------------------------------------------------------------


def not_calls(tree: Tree) -> Iterator[Finding]:
    """Yield a finding for every key that must hold a lazy call and holds something else."""
    for way in _CALLS:
        value = tree.get(*way)
        name = value.__name__ if isinstance(value, type) else _class_named(value)
        if name:
            hint = f"write LazyCall({name})(…)"
            yield Finding(str(tree.place(*way)), f"{dotted(way)} is the class {name}, not a lazy call", hint)
        elif isinstance(value, Mapping) and "_target_" not in value:
            hint = "write LazyCall(…)(…), or give it a _target_"
            yield Finding(str(tree.place(*way)), f"{dotted(way)} is a mapping without a target, not a lazy call", hint)


def _class_named(value: Any) -> str:
    """Return the name of a class that was not imported; empty for anything else."""
    module, _, name = value.name.rpartition(".") if isinstance(value, Unread) else ("", "", "")
    return name if class_of(f"{module}:{name}", folders=tuple(sys.path)) is not None else ""


def not_loaders(tree: Tree) -> Iterator[Finding]:
    """Yield a finding if the test data is no list of lazy calls."""
    test, libai = tree.get("dataloader", "test"), not is_detectron2(tree.values)
    if libai and isinstance(test, Mapping):
        yield Finding(
            str(tree.place("dataloader", "test")), "dataloader.test is one loader", "write a list: [LazyCall(…)(…)]"
        )
    for index, loader in enumerate(test if isinstance(test, list) else []):
        if isinstance(loader, Mapping) and "_target_" not in loader:
            way = ("dataloader", "test", index)
            yield Finding(str(tree.place(*way)), f"{dotted(way)} is a mapping without a target, not a lazy call")


# -- what refers to what is there --------------------------------------------------------------------------------------


def _interpolations(tree: Tree) -> Iterator[Finding]:
    """Yield a finding for every ``${…}`` that refers to nothing, except to keys that are filled in later."""
    held = [(way, value) for way, value in tree.walk() if isinstance(value, str) and "${" in value]
    held = [(way, value) for way, value in held if not isinstance(value, Unread)]
    config = dict_config(as_text(tree.values)) if held else None
    for way, value in held:
        key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in way).lstrip(".")
        try:
            omegaconf().OmegaConf.select(config, key)
        except Exception as error:
            said = (str(error).splitlines() or [""])[0]
            there = _NOT_THERE.search(said)
            wanted = way_of(there[1]) if there is not None else ()
            if not wanted or wanted[-1] not in KEYS.get(wanted[:-1], ()):
                yield Finding(str(tree.place(*way)), f"{dotted(way)} is {value!r}: {said}", _near(tree, wanted))


def _near(tree: Tree, way: Path) -> str:
    above = tree.get(*way[:-1]) if way else None
    found = nearest(str(way[-1]), list(map(str, above))) if isinstance(above, Mapping) else None
    return f"did you mean {dotted((*way[:-1], found))}?" if found else ""
