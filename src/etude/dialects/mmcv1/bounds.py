"""Tables of values that mmcv's classes refuse, so that ``check`` finds them without building anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from etude.dialects.openmm.checks.bounds import (
    OF_OPTIMIZERS,
    OPEN_SHARE,
    Bound,
    Bounds,
    bounds_of,
    fits,
    is_number,
    is_whole,
    unquoted,
)
from etude.dialects.openmm.metric_rules import GREATER_KEYS, LESS_KEYS
from etude.errors import is_slip

Given = Mapping[Any, Any]


def _is_step(value: Any) -> bool:
    steps = value if isinstance(value, list) else [value]
    return all(is_whole(step) and step > 0 for step in steps)


def _is_ratio(value: Any) -> bool:
    if isinstance(value, float):
        return True
    return isinstance(value, tuple) and len(value) in (1, 2) and all(map(is_number, value))


def _is_per_group(value: Any) -> bool:
    """Return whether ``value`` is a number, a list with one per group, or a dict with either per optimizer."""
    return is_number(value) or isinstance(value, list | dict)


_WHOLE = Bound(lambda value: is_whole(value) and value > 0, "a whole number above 0")
_FACTOR = Bound(lambda value: is_number(value) and 0 < value <= 1, "a number above 0 and at most 1")
_BY_ITERATION = Bound(lambda value: value is False, "False: this policy counts iterations")
_RATIO = Bound(_is_ratio, "a tuple or a float, such as (10, 1e-4)")
_PER_GROUP = Bound(_is_per_group, "a number, a list with one per group, or a dict with one per optimizer")

BOUNDS: Bounds = {
    **OF_OPTIMIZERS,
    "Step*UpdaterHook": {"step": Bound(_is_step, "a whole number above 0, or a list of such")},
    "Cyclic*UpdaterHook": {
        "target_ratio": _RATIO,
        "cyclic_times": _WHOLE,
        "step_ratio_up": Bound(lambda value: is_number(value) and 0 <= value < 1, "a number from 0 to below 1"),
        "by_epoch": _BY_ITERATION,
    },
    "CyclicLrUpdaterHook": {"gamma": _FACTOR},
    "OneCycle*UpdaterHook": {
        "by_epoch": _BY_ITERATION,
        "max_lr": _PER_GROUP,
        "base_momentum": _PER_GROUP,
        "max_momentum": _PER_GROUP,
        "total_steps": _WHOLE,
    },
    "CosineRestart*UpdaterHook": {
        "periods": Bound(lambda value: isinstance(value, list) and _is_step(value), "a list of whole numbers above 0"),
        "restart_weights": Bound(lambda value: isinstance(value, list) and all(map(is_number, value)), "a list"),
    },
    "*EMAHook": {"momentum": OPEN_SHARE, "interval": _WHOLE},
    "GradientCumulative*": {"cumulative_iters": _WHOLE},
    "ProfilerHook": {"profile_iters": _WHOLE},
}


class Refusal(NamedTuple):
    """A value that is refused: its key (empty for the whole dict), what is wrong, and a hint."""

    key: str
    message: str
    hint: str = ""


def refused(name: str, given: Given) -> Iterator[Refusal]:
    """Yield the values in ``given`` that the class called ``name`` refuses."""
    for key, bound in bounds_of(name, BOUNDS):
        value = given.get(key)
        if value is not None and not bound.fits(value):
            shown = "a tuple" if key == "step" and isinstance(value, tuple) else repr(value)
            yield Refusal(key, f"must be {bound.want}, not {shown}", _hint(key, value))
    for pattern, rule in _TOGETHER.items():
        if fits(name, pattern):
            yield from rule(given)


def _hint(key: str, value: Any) -> str:
    if key == "step" and isinstance(value, tuple):
        return f"write {list(value)}"
    texts = [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    return unquoted(texts[0]) if texts else ""


def _warmup(given: Given) -> Iterator[Refusal]:
    if given.get("warmup") is None:
        return
    iters = given.get("warmup_iters", 0)
    if not is_number(iters) or iters <= 0:
        if "warmup_iters" in given:
            yield Refusal("warmup_iters", f"must be above 0 with a warmup, not {iters!r}")
        else:
            yield Refusal("warmup", "needs warmup_iters", "how many iterations it lasts")
    ratio = given.get("warmup_ratio", 0.1)
    if not _FACTOR.fits(ratio):
        yield Refusal("warmup_ratio", f"must be {_FACTOR.want}, not {ratio!r}")


def _restarts(given: Given) -> Iterator[Refusal]:
    periods, weights = given.get("periods"), given.get("restart_weights", [1])
    if isinstance(periods, list) and isinstance(weights, list) and len(periods) != len(weights):
        yield Refusal(
            "restart_weights" if "restart_weights" in given else "periods",
            f"must be as many: there are {len(periods)} periods and {len(weights)} restart_weights",
        )


def _pruning(given: Given) -> Iterator[Refusal]:
    if given.get("interval", -1) == 0 and is_whole(given.get("max_keep_ckpts")) and given["max_keep_ckpts"] > 0:
        yield Refusal("max_keep_ckpts", "prunes every `interval`, which is 0", "give interval=1")


def _best(given: Given) -> Iterator[Refusal]:
    """Check that ``save_best`` names a result that is evaluated, and that it is known whether greater is better."""
    best, metric = given.get("save_best"), given.get("metric")
    if not isinstance(best, str) or best == "auto":
        return
    metrics = [name for name in (metric if isinstance(metric, list | tuple) else [metric]) if isinstance(name, str)]
    near = next((name for name in metrics if best != name and is_slip(best.casefold(), name.casefold())), None)
    if near is not None:
        yield Refusal("save_best", f"{best!r} is not what is evaluated", f"did you mean {near!r}?")
    elif given.get("rule") is None and not any(word in best.casefold() for word in _direction_words(given)):
        yield Refusal(
            "save_best", f"{best!r} does not tell by its name whether it should grow or shrink",
            "give rule='greater' or rule='less'",
        )  # fmt: skip


def _direction_words(given: Given) -> list[str]:
    """Return the parts of names that show whether greater or less is better."""
    found: list[str] = []
    for key, usual in (("greater_keys", GREATER_KEYS), ("less_keys", LESS_KEYS)):
        own = given.get(key)
        found += [own] if isinstance(own, str) else list(usual if own is None else own)
    return [str(word).casefold() for word in found]


_TOGETHER: Mapping[str, Callable[[Given], Iterator[Refusal]]] = {
    "*UpdaterHook": _warmup,
    "CosineRestart*UpdaterHook": _restarts,
    "CheckpointHook": _pruning,
    "EvalHook": _best,
}
