"""Predicts the names of the results that an evaluation will record, so that ``best`` can be checked before training."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from etude.plan import Plan, Spec

_Names = Callable[[Mapping[str, Any]], set[str]]


def _accuracy(args: Mapping[str, Any]) -> set[str]:
    top = args.get("top", 1)
    return {"accuracy" if k == 1 else f"accuracy_top{k}" for k in (top if isinstance(top, list | tuple) else [top])}


#: Metrics that come with Étude: what they record, by their arguments. ``name/`` means all that begin so.
_KNOWN: Mapping[str, _Names] = {
    "Accuracy": _accuracy,
    "Confusion": lambda args: {"recall/"},
    "F1": lambda args: {"f1"},
    "AUROC": lambda args: {"auroc"},
    "AveragePrecision": lambda args: {"average_precision"},
    "IoU": lambda args: {"iou"},
    "MAE": lambda args: {"mae"},
    "Perplexity": lambda args: {"perplexity"},
    "R2": lambda args: {"r2"},
    "Mean": lambda args: {str(args.get("key") or "mean")},
    "RMSE": lambda args: {"rmse"},
}


def result_names(plan: Plan) -> tuple[set[str], bool]:
    """Return the names, and whether they are complete: user-defined metrics may record anything."""
    names = {"loss"}
    if not plan.losses:
        names.add("loss/")  # a model that computes its own losses names them itself
    elif len(plan.losses) > 1:
        own = [spec.name.rpartition(".")[2] for spec in plan.losses]
        # The second loss of a name is recorded as ``name#2``.
        counts = [own[: number + 1].count(name) for number, name in enumerate(own)]
        names |= {f"loss/{name}" + (f"#{n}" if n > 1 else "") for name, n in zip(own, counts, strict=True)}
    for spec in plan.metrics:
        names |= names_of(spec)
    further = [split for split in plan.data if is_further(split)]
    names |= {f"{split}/{name}" for split in further for name in names}
    return names, all(spec.name in _KNOWN for spec in plan.metrics)


def is_further(split: str) -> bool:
    """Return whether a split is validation data beside ``val``: ``val_noisy``."""
    return split.startswith("val_")


def names_of(spec: Spec) -> set[str]:
    """Return the names that one metric records; for one of your own, its ``name`` or its class in snake case."""
    if spec.name in _KNOWN:
        return _KNOWN[spec.name](spec.args)
    given = spec.args.get("name")
    own = spec.name.rpartition(".")[2]
    return {given} if isinstance(given, str) else {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", own).lower()}


def is_certain(spec: Spec) -> bool:
    """Return whether :func:`names_of` knows the names; one of your own may choose its name when it is made."""
    return spec.name in _KNOWN or isinstance(spec.args.get("name"), str)


def is_recorded(name: str, names: set[str]) -> bool:
    return name in names or any(name.startswith(prefix) for prefix in names if prefix.endswith("/"))
