"""Parameter groups: one entry per parameter, and back to one group per set of options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

Group = dict[str, Any]
Groups = list[Group]


def own_parameters(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Every parameter that learns, once, with the module that owns it first and its name there."""
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                yield module, name, parameter


def expand(groups: Groups) -> Groups:
    """One group per parameter; what a later group says about it is added to what an earlier one said."""
    per_parameter: dict[Any, Group] = {}
    for group in groups:
        assert "params" in group
        options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
        names = group.get("param_names", [None] * len(group["params"]))
        for parameter, name in zip(group["params"], names, strict=True):
            entry = per_parameter.setdefault(parameter, {"params": [parameter]})
            entry.update(options)
            if name is not None:
                entry["param_names"] = [name]
    return list(per_parameter.values())


def reduce(groups: Groups) -> Groups:
    """Parameters with the same options, in the same order, together; groups in the order they first come."""
    by_options: dict[tuple[tuple[str, Any], ...], Group] = {}
    for entry in expand(groups):
        options = tuple((key, value) for key, value in entry.items() if key not in ("params", "param_names"))
        group = by_options.setdefault(options, {**dict(options), "params": []})
        group["params"].extend(entry["params"])
        if "param_names" in entry:
            group.setdefault("param_names", []).extend(entry["param_names"])
    return list(by_options.values())
