"""Warm starts: weights of another run or system into a model, with names adapted, and a table of what went where."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from etude.checkpoint import foreign, load
from etude.checkpoint.find import find
from etude.checkpoint.places import locate
from etude.errors import ConfigError, ResumeError, nearest, printable

#: Where other systems keep the weights inside their files.
WEIGHT_KEYS = ("state_dict", "model", "model_state_dict", "module", "net", "weights")
_TENSOR = torch.Tensor


@dataclass(frozen=True)
class Match:
    """How weights fit a model: names on both sides, names on one side only, and those of other shapes."""

    matched: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not (self.missing or self.unexpected or self.mismatched)


def init_from(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    to: str = "",
    rename: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    strict: bool = False,
    key: str = "",
    trust: bool = False,
) -> Match:
    """Load weights alone from a checkpoint of Étude or of another system.

    ``prefix`` takes the entries below it and cuts it off (one submodule from a larger model); ``to`` puts them below
    a submodule of ``model``; ``rename`` is a list of (regular expression, replacement), applied in order. What has no
    counterpart or another shape is left as it is and listed, unless ``strict``; that nothing fits is always an error.
    """
    weights = read_weights(path, key=key, trust=trust)
    weights = adapt(weights, prefix=prefix, to=to, rename=rename)
    state = model.state_dict()
    match = compare(state, weights)
    if not match.matched:
        raise ConfigError(f"init_from {printable(os.fspath(path))}: nothing matched\n{describe(match)}")
    if strict and not match.exact:
        raise ConfigError(f"init_from {printable(os.fspath(path))}: does not fit exactly\n{describe(match)}")
    with torch.no_grad():
        for name in match.matched:
            if isinstance(state[name], _TENSOR):
                state[name].copy_(weights[name])
    return match


def read_weights(path: str | os.PathLike[str], *, key: str = "", trust: bool = False) -> dict[str, torch.Tensor]:
    """The weights in a file or checkpoint, or in the newest one of a run, whatever system wrote it."""
    path = find(os.fspath(path))
    disk, place = locate(path)
    if "manifest.json" in disk.names(place):
        return dict(load.load(disk, place, need=["model"], only=["model"]).state["model"])
    content = foreign.read(path, trust=trust)
    return weights_in(content, key=key, at=os.fspath(path))


def weights_in(content: Mapping[Any, Any], *, key: str = "", at: str = "") -> dict[str, torch.Tensor]:
    """The weights inside a file's content: under ``key``, under a usual name, or the content itself."""
    if key:
        for step in key.split("."):
            if not isinstance(content, Mapping) or step not in content:
                raise ResumeError(f"{printable(at)}: no {printable(key)!r} in it")
            content = content[step]
    else:
        inner = next((content[name] for name in WEIGHT_KEYS if isinstance(content.get(name), Mapping)), None)
        content = inner if inner is not None and _tensors(inner) else content
    found = _tensors(content)
    if not found:
        raise ResumeError(f"{printable(at)}: holds no weights")
    return found


def _tensors(content: Mapping[Any, Any]) -> dict[str, torch.Tensor]:
    return {str(name): value for name, value in content.items() if isinstance(value, _TENSOR)}


def adapt(
    weights: Mapping[str, torch.Tensor],
    *,
    prefix: str = "",
    to: str = "",
    rename: Mapping[str, str] | Sequence[tuple[str, str]] = (),
) -> dict[str, torch.Tensor]:
    """Weights under the names that the model uses; see :func:`init_from`."""
    if prefix:
        dot = prefix if prefix.endswith(".") else f"{prefix}."
        inside = {name.removeprefix(dot): value for name, value in weights.items() if name.startswith(dot)}
        if not inside:
            heads = sorted({name.partition(".")[0] for name in weights})
            near = nearest(prefix, heads)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(heads[:12])}"
            raise ConfigError(f"init_from: prefix {prefix!r} matches no weight", hint=hint)
        weights = inside
    pairs = list(rename.items()) if isinstance(rename, Mapping) else [(str(a), str(b)) for a, b in rename]
    named: dict[str, torch.Tensor] = {}
    for name, value in weights.items():
        for pattern, replacement in pairs:
            name = _substituted(pattern, replacement, name)
        named[f"{to.rstrip('.')}.{name}" if to else name] = value
    return named


def _substituted(pattern: str, replacement: str, name: str) -> str:
    try:
        return re.sub(pattern, replacement, name)
    except re.error as error:
        raise ConfigError(f"init_from: {pattern!r} is no regular expression: {error}") from None


def compare(model: Mapping[str, Any], weights: Mapping[str, Any]) -> Match:
    """Names and shapes of a model's state against those of ``weights``."""
    match = Match()
    for name, own in model.items():
        other = weights.get(name)
        if other is None:
            match.missing.append(name)
        elif _shape(own) != _shape(other):
            match.mismatched.append((name, _shape(own), _shape(other)))
        else:
            match.matched.append(name)
    match.unexpected.extend(name for name in weights if name not in model)
    return match


def describe(match: Match, *, most: int = 30) -> str:
    """A readable table: one line per name that did not simply fit, with the near name on the other side."""
    lines = [f"  shape    {name}: the model has {own}, the file {other}" for name, own, other in match.mismatched]
    unused = match.unexpected
    for name in match.missing:
        near = nearest(name, unused)
        lines.append(f"  missing  {printable(name)}" + (f" (the file has {printable(near)})" if near else ""))
    lines += [f"  unused   {printable(name)}" for name in unused]
    total = len(lines)
    if total > most:
        lines = [*lines[:most], f"  … and {total - most} more"]
    lines.append(
        f"  {len(match.matched)} fit, {len(match.mismatched)} of another shape, {len(match.missing)} missing, "
        f"{len(match.unexpected)} unused"
    )
    return "\n".join(lines)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))
