"""Warm start: loads weights of another run or system into a model, renames them, and reports what matched."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch

from etude.checkpoint import load
from etude.checkpoint.find import find, find_best, is_native, named_run
from etude.checkpoint.formats import folders, layouts
from etude.checkpoint.storage.places import locate
from etude.dist.layout.shards import like
from etude.errors import ConfigError, ResumeError, printable
from etude.errors.spelling import nearest, suggest
from etude.fast_dataclass import field, record

#: Where other systems keep the weights inside their files.
WEIGHT_KEYS = ("state_dict", "model", "model_state_dict", "module", "net", "weights")


@record
class Match:
    """The match of weights and model: names on both sides, names on one side only, and different shapes."""

    matched: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    #: Names of the model that were not asked for: those outside of the submodules that weights are put into.
    outside: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not (self.missing or self.unexpected or self.mismatched)


Prefix = str | Mapping[str, str]
Rename = Mapping[str, str] | Sequence[tuple[str, str]]


def init_from(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    prefix: Prefix = "",
    to: str = "",
    rename: Rename = (),
    strict: bool = False,
    key: str = "",
    best: bool | str = False,
    trust: bool = False,
) -> Match:
    """Load weights alone from a checkpoint of Étude or of another system.

    ``path`` may be the name of a run below ``runs``; ``best`` takes its best checkpoint, by ``checkpoint.best`` of its
    config or by a metric that is named.
    ``prefix`` takes the entries below it and cuts it off (one submodule from a larger model); ``to`` puts them below
    a submodule of ``model``; a mapping (``{"backbone": "encoder"}``) does both for several. ``rename`` is a list of
    (regular expression, replacement), applied in order. What has no counterpart or another shape is left as it is and
    listed, unless ``strict``, which asks that all of the weights taken fit all of the submodules they are put into;
    that nothing fits is always an error.
    """
    at = f"init_from {printable(os.fspath(path))}"
    path = named_run(os.fspath(path))
    path = find_best(path, "" if best is True else best) if best else path
    weights = adapt(read_weights(path, key=key, trust=trust), prefix=prefix, to=to, rename=rename)
    state = model.state_dict()
    match = compare(state, weights, inside=_targets(prefix, to))
    if not match.matched:
        raise ConfigError(f"{at}: nothing matched\n{describe(match)}", hint=_hint(state, weights))
    if strict and not match.exact:
        raise ConfigError(f"{at}: does not fit exactly\n{describe(match)}")
    with torch.no_grad():
        for name in match.matched:
            if isinstance(state[name], torch.Tensor):
                state[name].copy_(like(weights[name], state[name]))
    return match


def _targets(prefix: Prefix, to: str) -> tuple[str, ...]:
    """Return how the names begin that weights are loaded into; all of them begin with an empty one."""
    return tuple(map(_dot, prefix.values() if isinstance(prefix, Mapping) else [to]))


def _dot(prefix: str) -> str:
    return f"{prefix.rstrip('.')}." if prefix else ""


def _hint(state: Mapping[str, Any], weights: Mapping[str, Any]) -> str:
    """Suggest the prefix that would make the names agree: the usual reason that nothing does."""
    for words, inner, outer in (("prefix", state, weights), ("to", weights, state)):
        heads = {head for name in outer for head in _heads(name)}
        best = max(heads, key=lambda head: sum(f"{head}{name}" in outer for name in inner), default="")
        if best and any(f"{best}{name}" in outer for name in inner):
            return f"`{words}: {best.rstrip('.')}` would make names agree"
    return ""


def _heads(name: str) -> list[str]:
    """Return ``a.`` and ``a.b.`` of ``a.b.c``: the prefixes that a name of another model may have."""
    steps = name.split(".")
    return [".".join(steps[:count]) + "." for count in range(1, min(len(steps), 5))]


def read_weights(path: str | os.PathLike[str], *, key: str = "", trust: bool = False) -> dict[str, torch.Tensor]:
    """Return the weights in a file or checkpoint, or in the newest one of a run, of any system."""
    path = find(os.fspath(path))
    if is_native(path) and not key:
        return dict(load_native(path, need=["model"], only=["model"]).state["model"])
    if is_native(path):
        return weights_in(load_native(path).state, key=key, at=path)
    content = folders.read(path, trust=trust)
    return weights_in(content, key=key, at=os.fspath(path))


def load_native(path: str, **options: Any) -> load.Loaded:
    """Load a checkpoint of Étude and verify it; errors name its path."""
    try:
        return load.load(*locate(path), **options)
    except ResumeError as error:
        raise ResumeError(f"{printable(path)}: {error}") from error


def weights_in(content: Mapping[Any, Any], *, key: str = "", at: str = "") -> dict[str, torch.Tensor]:
    """Return the weights inside a file's content: under ``key``, under a usual name, or the content itself."""
    place = key or weights_place(content)
    inner = _inside(content, place)
    has = ", ".join(printable(str(name)) for name in list(content)[:12]) or "nothing"
    if inner is None:
        raise ResumeError(f"{printable(at)}: no {printable(place)!r} in it; it has {has}")
    found = _tensors(inner)
    if not found:
        where = f"no weights below {printable(place)!r}" if place else "holds no weights"
        raise ResumeError(f"{printable(at)}: {where}; it has {has}")
    return found


def weights_place(content: Mapping[Any, Any]) -> str:
    """Return the usual name under which the weights are; empty if the content itself is the weights."""
    places = (*WEIGHT_KEYS, *(layout.weights for layout in layouts.known() if layout.weights))
    return next((name for name in places if _tensors(_inside(content, name) or {})), "")


def _inside(content: Mapping[Any, Any], place: str) -> Mapping[Any, Any] | None:
    """Return what lies at the dotted ``place``; names may hold dots themselves (``hook.Ema``)."""
    steps = place.split(".") if place else []
    while steps:
        # The longest name first: `hook.Ema` is one key, not `Ema` inside of `hook`.
        names = [".".join(steps[:count]) for count in range(len(steps), 0, -1)]
        name = next((name for name in names if isinstance(content, Mapping) and name in content), None)
        if name is None:
            return None
        content, steps = content[name], steps[name.count(".") + 1 :]
    return content if isinstance(content, Mapping) else None


def _tensors(content: Mapping[Any, Any]) -> dict[str, torch.Tensor]:
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}


def adapt(
    weights: Mapping[str, torch.Tensor], *, prefix: Prefix = "", to: str = "", rename: Rename = ()
) -> dict[str, torch.Tensor]:
    """Return the weights under the model's names; see :func:`init_from`."""
    if isinstance(prefix, Mapping) and to:
        raise ConfigError("init_from: a mapping of prefixes says where each goes; leave `to` out")
    places = prefix.items() if isinstance(prefix, Mapping) else [(prefix, to)]
    pairs = list(rename.items()) if isinstance(rename, Mapping) else [(str(a), str(b)) for a, b in rename]
    named: dict[str, torch.Tensor] = {}
    for source, target in places:
        for name, value in _below(weights, source).items():
            for pattern, replacement in pairs:
                name = _substituted(pattern, replacement, name)
            named[f"{_dot(target)}{name}"] = value
    return named


def _below(weights: Mapping[str, torch.Tensor], prefix: str) -> Mapping[str, torch.Tensor]:
    """Return the entries below ``prefix``, without it."""
    inside = {
        name.removeprefix(_dot(prefix)): value for name, value in weights.items() if name.startswith(_dot(prefix))
    }
    if not inside:
        depth = prefix.rstrip(".").count(".") + 1
        heads = sorted({".".join(name.split(".")[:depth]) for name in weights})
        hint = suggest(prefix, heads, otherwise=f"it has {', '.join(map(printable, heads[:12]))}")
        raise ConfigError(f"init_from: prefix {prefix!r} matches no weight", hint=hint)
    return inside


def _substituted(pattern: str, replacement: str, name: str) -> str:
    try:
        return re.sub(pattern, replacement, name)
    except re.error as error:
        raise ConfigError(f"init_from: {pattern!r} is not a valid regular expression: {error}") from None


def compare(model: Mapping[str, Any], weights: Mapping[str, Any], *, inside: tuple[str, ...] = ()) -> Match:
    """Compare names and shapes of a model's state, or of what is ``inside`` some submodules, with those of
    ``weights``."""
    match = Match()
    for name, own in model.items():
        other = weights.get(name)
        if other is None:
            (match.missing if not inside or name.startswith(inside) else match.outside).append(name)
        elif _shape(own) != _shape(other):
            match.mismatched.append((name, _shape(own), _shape(other)))
        else:
            match.matched.append(name)
    match.unexpected.extend(name for name in weights if name not in model)
    return match


def describe(match: Match, *, most: int = 30, sides: tuple[str, str] = ("model", "file")) -> str:
    """Return a table: one line per name that did not simply match, with a similar name of the other side."""
    lines = [
        ("shape", name, f": the {sides[0]} has {own}, the {sides[1]} {other}") for name, own, other in match.mismatched
    ]
    for name in match.missing:
        near = nearest(name, match.unexpected)
        lines.append(("missing", name, f" (the {sides[1]} has {printable(near)})" if near else ""))
    lines += [("unused", name, "") for name in match.unexpected]
    lines = _grouped(lines) if len(lines) > most else lines
    shown = [f"  {kind:<8} {printable(name)}{note}" for kind, name, note in lines[:most]]
    more = [f"  … and {len(lines) - most} lines more"] if len(lines) > most else []
    return "\n".join([*shown, *more, f"  {_sum(match)}"])


def _grouped(lines: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Join names of one kind below one module into one line, if there are too many to read."""
    groups: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for line in lines:
        head = ".".join(line[1].split(".")[:-1][:2])
        groups.setdefault((line[0], head), []).append(line)
    # Names at the top belong to no module, and stay as they are.
    joined = (
        one if len(one) == 1 or not head else [(kind, f"{head}.*", f" ({len(one)} tensors)")]
        for (kind, head), one in groups.items()
    )
    return list(chain.from_iterable(joined))


def _sum(match: Match) -> str:
    counts = [
        (len(match.matched), "fit"), (len(match.mismatched), "of another shape"), (len(match.missing), "missing"),
        (len(match.unexpected), "unused"),
    ]  # fmt: skip
    text = ", ".join(f"{count} {word}" for count, word in counts)
    return text + (f"; the other {len(match.outside)} of the model stay as they are" if match.outside else "")


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))
