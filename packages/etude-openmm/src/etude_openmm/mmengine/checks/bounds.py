"""Finds values that the classes of MMEngine refuse or ignore, before anything is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.tree import Path, dotted
from etude.errors.spelling import nearest
from etude_openmm.shared.checks.bounds import (
    OF_OPTIMIZERS,
    OPEN_SHARE,
    SHARE,
    Bound,
    Bounds,
    at_least,
    bounds_of,
    is_number,
    unquoted,
)
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.checks.weights import report_weights

Given = Mapping[Any, Any]
_SECTIONS = ("optim_wrapper", "default_hooks", "custom_hooks", "param_scheduler")
_DTYPES = ("float16", "bfloat16", "float32", "float64")
_LOOP = "IterBasedTrainLoop"


_POSITIVE, _COUNT = at_least(1), at_least(0)
_SCALE = Bound(
    lambda value: is_number(value) or isinstance(value, Mapping) or value == "dynamic",
    "'dynamic', a number or a dict", ("dynamic",),
)  # fmt: skip
_MILESTONES = Bound(lambda value: isinstance(value, list | tuple), "a list of numbers")

BOUNDS: Bounds = {
    **OF_OPTIMIZERS,
    "*OptimWrapper": {
        "accumulative_counts": Bound(lambda value: is_number(value) and value > 0, "a whole number of at least 1")
    },
    "AmpOptimWrapper": {
        "loss_scale": _SCALE,
        "dtype": Bound(lambda value: not isinstance(value, str) or value in _DTYPES, ", ".join(_DTYPES), _DTYPES),
    },
    "EMAHook": {"begin_iter": _COUNT, "begin_epoch": _COUNT, "interval": _POSITIVE},
    "LoggerHook": {"interval": _POSITIVE, "interval_exp_name": _POSITIVE},
    "CheckpointHook": {"save_begin": _COUNT},
    "Linear[LMP]*": {"start_factor": SHARE, "end_factor": SHARE},
    "Constant[LMP]*": {"factor": SHARE},
    "MultiStep[LMP]*": {"milestones": _MILESTONES},
}
#: What ``EMAHook`` averages with → the bound of its momentum.
_MOMENTA = {"ExponentialMovingAverage": OPEN_SHARE, "MomentumAnnealingEMA": OPEN_SHARE, "CosineEMA": SHARE}


def report_bounds(low: Lowering, defaults: Mapping[tuple[str, ...], str]) -> None:
    """Add to the findings of ``low``; ``defaults`` are the classes of dicts without a ``type``."""
    own = {name for _, name in low.registered}
    for path, value in low.tree.walk():
        if path[0] in _SECTIONS and isinstance(value, Mapping):
            name = value.get("type", defaults.get(tuple(map(str, path)), ""))
            bare = name.rpartition(".")[2] if isinstance(name, str) else ""
            if bare and bare not in own:
                _refused(low, path, value, bare)
    report_weights(low, "load_from")
    _epochs_among_iterations(low)


def _refused(low: Lowering, path: Path, given: Given, name: str) -> None:
    for key, bound in _bounds_of(name, given):
        value, where = given.get(key), (*path, key)
        if value is None or bound.fits(value) or low.has_error(where):
            continue
        near = nearest(value, bound.words) if isinstance(value, str) else None
        hint = unquoted(value) or (f"did you mean {near!r}?" if near else "")
        low.error(low.place(*where), f"{dotted(where)} must be {bound.want}, not {value!r}", hint)


def _bounds_of(name: str, given: Given) -> Iterator[tuple[str, Bound]]:
    yield from bounds_of(name, BOUNDS)
    if name == "EMAHook":
        kind = str(given.get("ema_type", "ExponentialMovingAverage")).rpartition(".")[2]
        if kind in _MOMENTA:
            yield "momentum", _MOMENTA[kind]


def _epochs_among_iterations(low: Lowering) -> None:
    """Find what counts epochs in a run by iterations, which is one long epoch: it comes at the end, if at all."""
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
