"""Finds values that the classes of MMEngine refuse or ignore, before anything is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from etude.config.tree import Path, dotted
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.reading.source import is_missing, near_checkpoint
from etude.errors import nearest

Given = Mapping[Any, Any]
_SECTIONS = ("optim_wrapper", "default_hooks", "custom_hooks", "param_scheduler")
_DTYPES = ("float16", "bfloat16", "float32", "float64")
_LOOP = "IterBasedTrainLoop"


class Bound(NamedTuple):
    """What a value has to be: a test, the words for it, and words that it may be a slip of."""

    fits: Callable[[Any], bool]
    want: str
    words: tuple[str, ...] = ()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _from(least: int) -> Bound:
    return Bound(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least,
        f"a whole number of at least {least}",
    )


_POSITIVE, _COUNT = _from(1), _from(0)
_LEAST_ZERO = Bound(lambda value: _is_number(value) and value >= 0, "a number of at least 0")
_SHARE = Bound(lambda value: _is_number(value) and 0 <= value <= 1, "a number from 0 to 1")
_OPEN_SHARE = Bound(lambda value: _is_number(value) and 0 < value < 1, "a number between 0 and 1, neither of them")
_SCALE = Bound(
    lambda value: _is_number(value) or isinstance(value, Mapping) or value == "dynamic",
    "'dynamic', a number or a dict", ("dynamic",),
)  # fmt: skip
_MILESTONES = Bound(lambda value: isinstance(value, list | tuple), "a list of numbers")

#: Names of classes (``*`` stands for anything) → parameter → what it has to be.
BOUNDS: Mapping[str, Mapping[str, Bound]] = {
    "*OptimWrapper": {
        "accumulative_counts": Bound(lambda value: _is_number(value) and value > 0, "a whole number of at least 1")
    },
    "AmpOptimWrapper": {
        "loss_scale": _SCALE,
        "dtype": Bound(lambda value: not isinstance(value, str) or value in _DTYPES, ", ".join(_DTYPES), _DTYPES),
    },
    "EMAHook": {"begin_iter": _COUNT, "begin_epoch": _COUNT, "interval": _POSITIVE},
    "LoggerHook": {"interval": _POSITIVE, "interval_exp_name": _POSITIVE},
    "CheckpointHook": {"save_begin": _COUNT},
    "Linear[LMP]*": {"start_factor": _SHARE, "end_factor": _SHARE},
    "Constant[LMP]*": {"factor": _SHARE},
    "MultiStep[LMP]*": {"milestones": _MILESTONES},
    "SGD": {"lr": _LEAST_ZERO, "momentum": _LEAST_ZERO, "weight_decay": _LEAST_ZERO},
    "*Adam*": {"lr": _LEAST_ZERO, "weight_decay": _LEAST_ZERO},
}
#: What ``EMAHook`` averages with → the bound of its momentum.
_MOMENTA = {"ExponentialMovingAverage": _OPEN_SHARE, "MomentumAnnealingEMA": _OPEN_SHARE, "CosineEMA": _SHARE}


def report_bounds(low: Lowering, defaults: Mapping[tuple[str, ...], str]) -> None:
    """Add to the findings of ``low``; ``defaults`` are the classes of dicts without a ``type``."""
    own = {name for _, name in low.registered}
    for path, value in low.tree.walk():
        if path[0] in _SECTIONS and isinstance(value, Mapping):
            name = value.get("type", defaults.get(tuple(map(str, path)), ""))
            bare = name.rpartition(".")[2] if isinstance(name, str) else ""
            if bare and bare not in own:
                _refused(low, path, value, bare)
    _dynamic_intervals(low)
    _weights(low)
    _epochs_among_iterations(low)


def _refused(low: Lowering, path: Path, given: Given, name: str) -> None:
    for key, bound in _bounds_of(name, given):
        value, where = given.get(key), (*path, key)
        if value is None or bound.fits(value) or low.has_error(where):
            continue
        near = nearest(value, bound.words) if isinstance(value, str) else None
        hint = f"did you mean {near!r}?" if near else ""
        if isinstance(value, str) and value.strip().lstrip("-").replace(".", "", 1).isdigit():
            hint = f"write {value.strip()} without quotes"
        low.error(low.place(*where), f"{dotted(where)} must be {bound.want}, not {value!r}", hint)


def _bounds_of(name: str, given: Given) -> Iterator[tuple[str, Bound]]:
    for pattern, bounds in BOUNDS.items():
        if fnmatchcase(name, pattern):
            yield from bounds.items()
    if name == "EMAHook":
        kind = str(given.get("ema_type", "ExponentialMovingAverage")).rpartition(".")[2]
        if kind in _MOMENTA:
            yield "momentum", _MOMENTA[kind]


def _dynamic_intervals(low: Lowering) -> None:
    """The loop takes tuples and nothing else."""
    path = ("train_cfg", "dynamic_intervals")
    given = low.tree.get(*path)
    if given is None or low.has_error(path):
        return
    pairs = given if isinstance(given, list) else []
    if pairs and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return
    written = [tuple(pair) for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2]
    hint = f"write {written}" if written and len(written) == len(pairs) else "such as [(10, 1)]"
    low.error(low.place(*path), f"{dotted(path)} must be a list of tuples (begin, interval), not {given!r}", hint)


def _weights(low: Lowering) -> None:
    """A file to begin with that is not there; what has a scheme lies elsewhere."""
    file = low.tree.get("load_from")
    if is_missing(file):
        low.warning(low.place("load_from"), f"load_from: there is no file {file!r}", near_checkpoint(file))


def _epochs_among_iterations(low: Lowering) -> None:
    """What counts epochs in a run by iterations, which is one long epoch: it comes at the end, if at all."""
    given = low.tree.get("train_cfg")
    if not isinstance(given, Mapping):
        return
    usual = _LOOP if not given.get("by_epoch", "max_iters" not in given) else ""
    if str(given.get("type", usual)).rpartition(".")[2] != _LOOP:
        return
    for path, value in low.tree.walk():
        if isinstance(value, Mapping) and path[0] in _SECTIONS:
            _counts_epochs(low, path, value)


def _counts_epochs(low: Lowering, path: Path, given: Given) -> None:
    name = given.get("type", "CheckpointHook" if path == ("default_hooks", "checkpoint") else "")
    bare = name.rpartition(".")[2] if isinstance(name, str) else ""
    message = f"{dotted(path)} counts epochs in a run by iterations, which has one epoch only"
    if path[0] == "param_scheduler" and bare and given.get("by_epoch", True) and not bare.startswith("ReduceOnPlateau"):
        hint = "give by_epoch=False, and begin, end and lengths in iterations"
        if given.get("convert_to_iter_based"):
            message = f"{dotted(path)} counts epochs in a run by iterations: each is a pass over the data"
        low.warning(low.place(*path), message, hint)
    elif bare == "CheckpointHook" and given.get("by_epoch", True) and _POSITIVE.fits(given.get("interval", -1)):
        low.warning(low.place(*path), message, "give by_epoch=False and an interval in iterations")
    elif bare == "EMAHook" and given.get("begin_epoch"):
        low.warning(low.place(*path, "begin_epoch"), message, "give begin_iter")
