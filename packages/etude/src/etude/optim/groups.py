"""Makes parameter groups from the rules of a config.

A parameter belongs to the first rule that matches it; a rule with several conditions requires all of them.
``depth_decay`` combines with other rules: it multiplies the learning rate by a factor of the parameter's depth. A rule
that matches nothing, or only parameters of earlier rules, is a mistake.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from torch import nn

from etude import torch_private
from etude.errors import ConfigError
from etude.errors.spelling import nearest
from etude.fast_dataclass import record
from etude.plan import Group

_NORMS = (torch_private.batch_norm(), nn.GroupNorm, nn.LayerNorm, nn.LocalResponseNorm, nn.RMSNorm)


@record
class Named:
    """A parameter with its full name, the module that holds it, and its place from input to output."""

    name: str
    parameter: nn.Parameter
    owner: nn.Module
    depth: int = 0
    depths: int = 1

    @property
    def leaf(self) -> str:
        return self.name.rpartition(".")[2]


def named_parameters(model: nn.Module, patterns: Sequence[str] = ()) -> list[Named]:
    """Return the parameters of ``model`` in order; with ``patterns``, those whose name matches one (``encoder``
    means all below it)."""
    names = [name for name, _ in model.named_parameters()]
    depths = layer_depths(model, names)
    found = [
        Named(name, parameter, model.get_submodule(name.rpartition(".")[0]), *depths[name])
        for name, parameter in model.named_parameters()
    ]
    for pattern in patterns:
        if not any(_belongs(named.name, pattern) for named in found):
            raise ConfigError(f"params: {pattern!r} fits no parameter", hint=_hint(pattern, names))
    return [named for named in found if not patterns or any(_belongs(named.name, pattern) for pattern in patterns)]


def layer_depths(model: nn.Module, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Map name → (depth, number of depths). A model can define ``get_layer_depth(name)``.

    Otherwise numbered blocks (``layer1.0``, ``blocks.3``) are depths in their order; what comes before the first is
    depth 0, what comes after the last is the deepest, and a module between two belongs to the one before it.
    """
    own = getattr(model, "get_layer_depth", None)
    if callable(own):
        return {name: tuple(own(name)) for name in names}
    blocks = {name: _block(name) for name in names}
    order = list(dict.fromkeys(block for block in blocks.values() if block))
    last = max((number for number, name in enumerate(names) if blocks[name]), default=-1)
    depths: dict[str, int] = {}
    current = 0
    for number, name in enumerate(names):
        block = blocks[name]
        current = order.index(block) + 1 if block else current
        depths[name] = len(order) + 1 if number > last and order else current
    total = max(depths.values(), default=0) + 1
    return {name: (depth, total) for name, depth in depths.items()}


def make_groups(named: Sequence[Named], rules: Sequence[Group], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the groups for an optimizer with these ``defaults``, in the order of the rules; parameters without a
    rule come first."""
    claims = [rule for rule in rules if rule.depth_decay is None]
    depth_rules = [rule for rule in rules if rule.depth_decay is not None]
    members: dict[tuple[int, int], list[tuple[Named, float]]] = {}
    for parameter in named:
        claimed = next((number for number, rule in enumerate(claims) if fits(rule, parameter)), -1)
        deep = [rule for rule in depth_rules if fits(rule, parameter)]
        above = parameter.depths - 1 - parameter.depth
        decay = prod(rule.lr_mult * (rule.depth_decay or 1.0) ** above for rule in deep)
        key = (claimed, parameter.depth if deep else -1)
        members.setdefault(key, []).append((parameter, decay))
    _require_use(depth_rules, claims, named, {claimed for claimed, _ in members})
    _tell_of_two(claims, named)
    return [
        _group(claims[claimed] if claimed >= 0 else None, depth, found, defaults)
        for (claimed, depth), found in sorted(members.items())
    ]


def fits(rule: Group, named: Named) -> bool:
    """Return whether a parameter fulfils every condition of a rule."""
    if rule.match and not fnmatchcase(named.name, rule.match):
        return False
    if rule.module and rule.module not in _type_names(named.owner):
        return False
    return not rule.kind or rule.kind == kind_of(named)


def kind_of(named: Named) -> str:
    """Return ``norm`` (weights and biases of norm layers), ``embedding``, ``bias`` or ``weight``."""
    if isinstance(named.owner, _NORMS) or "norm" in type(named.owner).__name__.lower():
        return "norm"
    if isinstance(named.owner, nn.Embedding | nn.EmbeddingBag):
        return "embedding"
    return "bias" if named.leaf.endswith("bias") else "weight"


def describe(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows for a table: name, tensors, numbers, and the options that differ between groups or matter most."""
    listed = list(groups)
    options = [key for key in (listed[0] if listed else {}) if key not in ("params", "name")]
    shown = [key for key in options if key in ("lr", "weight_decay") or len({str(g.get(key)) for g in listed}) > 1]
    return [
        {
            "name": group.get("name", "all"),
            "tensors": len(group["params"]),
            "numbers": sum(parameter.numel() for parameter in group["params"]),
            **{key: group.get(key) for key in shown},
        }
        for group in listed
    ]


def rule_name(rule: Group) -> str:
    """Return the name of a group in tables and schedules: its own ``name``, or its conditions."""
    given = rule.options.get("name")
    return str(given) if given else " ".join(part for part in (rule.match, rule.module, rule.kind) if part)


def _group(
    rule: Group | None, depth: int, found: list[tuple[Named, float]], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    own = dict(rule.options) if rule else {}
    name = own.pop("name", None) or (rule_name(rule) if rule else "all")
    group = {**own, "params": [named.parameter for named, _ in found]}
    group["name"] = name if depth < 0 else f"{name} depth {depth}"
    factors = {"lr": found[0][1], "weight_decay": 1.0}
    if rule is not None:
        factors = {"lr": factors["lr"] * rule.lr_mult, "weight_decay": rule.decay_mult}
    for option, factor in factors.items():
        base = own.get(option, defaults.get(option))
        if base is not None and factor != 1.0:
            group[option] = base * factor
    return group


def _require_use(depth_rules: Sequence[Group], claims: Sequence[Group], named: Sequence[Named], used: set[int]) -> None:
    for rule in (*depth_rules, *claims):
        if not any(fits(rule, parameter) for parameter in named):
            message = f"the group rule {_told(rule)} fits no parameter"
            raise ConfigError(message, at=str(rule.at), hint=_near(rule, named))
    for number, rule in enumerate(claims):
        if number not in used:
            message = f"the group rule {_told(rule)} fits only parameters that rules before it have taken"
            raise ConfigError(message, at=str(rule.at))
    for rule in depth_rules:
        if rule.options or rule.decay_mult != 1.0:
            message = "depth_decay scales the learning rate only; other options need a rule of their own"
            raise ConfigError(message, at=str(rule.at))


def _tell_of_two(claims: Sequence[Group], named: Sequence[Named]) -> None:
    """Warn of parameters that fit two rules with different values, of which only the first one's count."""
    for number, rule in enumerate(claims):
        wanted = _values(rule)
        for first in claims[:number]:
            taken = _values(first)
            lost = {key: value for key, value in wanted.items() if taken.get(key) != value}
            both = [one.name for one in named if fits(rule, one) and _first(claims, one) is first]
            if lost and both:
                values = ", ".join(key if "×" in key else f"{key} {value}" for key, value in lost.items())
                more = f" and {len(both) - 1} more fit" if len(both) > 1 else " fits"
                text = f"{both[0]}{more} {_told(first)} and {_told(rule)}: the first rule counts, without {values}"
                warnings.warn(f"{rule.at}{': ' if rule.at.file else ''}{text}", stacklevel=2)


def _first(claims: Sequence[Group], named: Named) -> Group | None:
    return next((rule for rule in claims if fits(rule, named)), None)


def _values(rule: Group) -> dict[str, Any]:
    """Return what a rule sets."""
    own = {key: value for key, value in rule.options.items() if key != "name"}
    for name, factor in (("lr", rule.lr_mult), ("weight_decay", rule.decay_mult)):
        if factor != 1.0:  # a factor of 0 is the value 0
            own[f"{name} × {factor:g}" if factor else name] = factor
    return own


def _near(rule: Group, named: Sequence[Named]) -> str:
    if rule.match:
        return _hint(rule.match, [parameter.name for parameter in named])
    owners = sorted({type(parameter.owner).__name__ for parameter in named})
    near = nearest(rule.module, owners) if rule.module else None
    return f"did you mean {near!r}?" if near else ""


def _told(rule: Group) -> str:
    conditions = (("match", rule.match), ("module", rule.module), ("kind", rule.kind))
    return ", ".join(f"{word} {value!r}" for word, value in conditions if value) or "depth_decay"


def _hint(pattern: str, names: Sequence[str]) -> str:
    """Return a hint with the name or pattern that was probably meant."""
    parts = [name.split(".") for name in names]
    ends = {"*." + ".".join(p[-n:]) for p in parts for n in (1, 2) if len(p) > n}
    heads = {".".join(p[:n]) for p in parts for n in range(1, len(p))}
    near = nearest(pattern, sorted({*names, *ends, *heads, *(f"{head}.*" for head in heads)}))
    return f"did you mean {near!r}?" if near else ""


def _belongs(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(f"{pattern}.") or fnmatchcase(name, pattern)


def _block(name: str) -> str:
    parts = name.split(".")
    number = next((index for index, part in enumerate(parts) if part.isdigit()), None)
    return "" if number is None else ".".join(parts[: number + 1])


def _type_names(module: nn.Module) -> set[str]:
    kinds = [kind for kind in type(module).__mro__ if issubclass(kind, nn.Module) and kind is not nn.Module]
    return {kind.__name__ for kind in kinds} | {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
