"""Finds arguments of lazy calls with a wrong type or out of range. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from etude.config.conform import Misfit, conform
from etude.config.tree import Path, Tree, dotted
from etude.errors import Finding
from etude.errors.own_code import is_own
from etude.inspection.signatures import Parameter
from etude_libai.checks.calls import lazy_calls, signature_of
from etude_libai.checks.values import misfit
from etude_libai.lazy.targets import SERVED

_NOT_NEGATIVE: dict[str, Any] = {"type": "number", "minimum": 0}
_SHARE = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
_PART = {"type": "number", "minimum": 0, "maximum": 1}
_METHOD = {"enum": ["linear", "constant"]}
_COUNT = {"type": "integer", "minimum": 1}
_OPTIMIZER = {
    **dict.fromkeys(("lr", "eps", "weight_decay", "momentum", "lr_decay", "initial_accumulator_value"), _NOT_NEGATIVE),
    "betas": _SHARE,
}
_GROUPS = dict.fromkeys(
    ("base_lr", "weight_decay", "weight_decay_norm", "weight_decay_bias", "clip_grad_max_norm"), _NOT_NEGATIVE
)
_LOADER = {
    "num_workers": {"type": "integer", "minimum": 0},
    **dict.fromkeys(("train_batch_size", "test_batch_size", "total_batch_size", "prefetch_factor"), _COUNT),
}
#: Section → argument → the schema of its numbers, or of each number of a list.
_RANGES: dict[Path, Mapping[str, Mapping[str, Any]]] = {
    ("optim",): _OPTIMIZER,
    ("optimizer",): _OPTIMIZER,
    ("optim", "params"): _GROUPS,
    ("optimizer", "params"): _GROUPS,
    ("train", "scheduler"): {
        **dict.fromkeys(("alpha", "gamma", "power", "eta_min", "end_learning_rate"), _NOT_NEGATIVE),
        "warmup_factor": _PART,
        "warmup_method": _METHOD,
        "milestones": _SHARE,
        "step_size": _COUNT,
    },
    ("lr_multiplier",): {"warmup_factor": _NOT_NEGATIVE, "warmup_length": _PART, "warmup_method": _METHOD},
    ("dataloader", "train"): _LOADER,
    ("dataloader", "test"): _LOADER,
}

#: Shares of the run's length, which is known later. The target gets iterations in their place.
_SCALED: tuple[Path, ...] = (("train", "scheduler", "milestones"),)


def arguments(tree: Tree) -> list[Finding]:
    """Return a finding for every argument that a target cannot take; for user-defined classes, only a warning."""
    found: list[Finding] = []
    for way, node, target in lazy_calls(tree):
        signature = signature_of(target)
        ranges = _RANGES.get(tuple(key for key in way if not isinstance(key, int)), {})
        for parameter in signature.parameters if signature is not None else ():
            given = (*way, parameter.name)
            if parameter.annotation and parameter.name in node and given not in _SCALED:
                found += _of_kind(tree, given, node[parameter.name], parameter, severity=_severity(target))
        for name, wanted in ranges.items():
            if name in node and not any(finding.at == str(tree.place(*way, name)) for finding in found):
                found += _in_range(tree, (*way, name), node[name], wanted)
    return found


def _severity(target: Any) -> str:
    module = target if isinstance(target, str) else str(getattr(target, "__module__", ""))
    return "error" if is_own(module) or module.split(".")[0] in ("torch", *SERVED) else "warning"


def _of_kind(tree: Tree, way: Path, value: Any, parameter: Parameter, *, severity: str) -> list[Finding]:
    if not _is_plain(value):
        return []
    if (value is None and parameter.default == "None") or ("bool" in parameter.annotation and value in (0, 1)):
        return []
    try:
        conform(value, _of_configs(parameter.annotation))
    except Misfit as wrong:
        return [Finding(str(tree.place(*way)), f"{dotted(way)} must be {wrong}", wrong.hint, severity)]
    return []


def _in_range(tree: Tree, way: Path, value: Any, wanted: Mapping[str, Any]) -> list[Finding]:
    items: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
    wrong = next(filter(None, (misfit(item, wanted) for item in items if not isinstance(item, Mapping))), "")
    hint = "they are shares of the length, such as [0.5, 0.75]" if way in _SCALED else ""
    return [Finding(str(tree.place(*way)), f"{dotted(way)} is {value!r}: {wrong}", hint)] if wrong else []


def _is_plain(value: Any) -> bool:
    """Return whether the target gets this value itself: it is no lazy call, and nothing is filled in later."""
    if isinstance(value, str):
        return "${" not in value and value != "???"
    if isinstance(value, Mapping):
        return "_target_" not in value and all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, list | tuple) else not callable(value)


def _of_configs(annotation: str) -> str:
    """Return an annotation without tensors, because a config holds numbers in their place."""
    # detectron2 writes ``Tuple[float]`` for tuples of any length (``GeneralizedRCNN.pixel_mean``).
    annotation = re.sub(r"\b([Tt]uple)\[([\w.]+)\]", r"\1[\2, ...]", annotation)
    return re.sub(r"\s*\|\s*(torch\.)?Tensor\b", "", annotation)
