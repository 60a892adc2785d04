"""Values that MMEngine takes and that then do nothing, or fail only when they are first used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etude.config.tree import Path, dotted
from etude.dialects.openmm.checks.lowering import Lowering
from etude.dialects.openmm.metric_rules import GREATER_KEYS, LESS_KEYS, guess
from etude.errors import is_slip, nearest, suggest

#: Layers that rules for weights usually name; MMEngine looks for them by these words.
_LAYERS = (
    "Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "BatchNorm1d",
    "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "GroupNorm", "LayerNorm", "InstanceNorm1d", "InstanceNorm2d",
    "Embedding", "_BatchNorm",
)  # fmt: skip
_STATISTICS = ("mean", "max", "min", "current")
_HOOKS = ("default_hooks", "custom_hooks")


def report_unused(low: Lowering) -> None:
    """Add to the findings of ``low``."""
    _resume(low)
    _scaling(low)
    _schedulers_by_name(low)
    _statistics(low)
    for path, value in low.tree.walk():
        if isinstance(value, Mapping):
            if path[0] == "param_scheduler":
                _late_window(low, path, value)
            if path[0] in _HOOKS:
                _direction(low, path, value)
        if path[-1] == "layer" and "init_cfg" in path:
            _layer(low, path, value)


def _resume(low: Lowering) -> None:
    given = low.tree.get("resume")
    if isinstance(given, str):
        hint = f"write resume=True and load_from={given!r}"
        low.warning(low.place("resume"), f"resume is True or False: the file {given!r} is not looked at", hint)


def _scaling(low: Lowering) -> None:
    given = low.tree.get("auto_scale_lr")
    if isinstance(given, Mapping) and given.get("enable") and "base_batch_size" not in given:
        hint = "give the size of batches that the learning rate is meant for"
        low.error(low.place("auto_scale_lr"), "auto_scale_lr needs `base_batch_size`", hint)


def _schedulers_by_name(low: Lowering) -> None:
    """Schedulers by the names of several optimizers, where there is one."""
    given, wrapper = low.tree.get("param_scheduler"), low.tree.get("optim_wrapper")
    named = isinstance(given, Mapping) and "type" not in given and bool(given)
    single = isinstance(wrapper, Mapping) and "optimizer" in wrapper and "constructor" not in wrapper
    if named and single:
        text = f"param_scheduler names optimizers ({', '.join(map(str, given))}), but there is one without a name"
        low.error(low.place("param_scheduler"), text, "write a list of schedulers")


def _statistics(low: Lowering) -> None:
    """Check the statistics of log lines. Scripts may register their own, so only misspelt names are reported."""
    given = low.tree.get("log_processor", "custom_cfg")
    for index, entry in enumerate(given if isinstance(given, list | tuple) else ()):
        name = entry.get("method_name") if isinstance(entry, Mapping) else None
        near = nearest(name, [word for word in _STATISTICS if is_slip(name, word)]) if isinstance(name, str) else None
        if near and name not in _STATISTICS:
            path: Path = ("log_processor", "custom_cfg", index, "method_name")
            low.error(low.place(*path), f"{dotted(path)} is {name!r}", f"did you mean {near!r}?")


def _late_window(low: Lowering, path: Path, given: Mapping[Any, Any]) -> None:
    """Report a scheduler that begins when the run is over."""
    by_epoch, begin = bool(given.get("by_epoch", True)), given.get("begin", 0)
    length = low.tree.get("train_cfg", "max_epochs" if by_epoch else "max_iters")
    if isinstance(begin, int) and isinstance(length, int) and begin >= length > 0:
        unit = "epoch" if by_epoch else "iteration"
        text = f"{dotted(path)} begins after {unit} {begin}, but the run has {length}"
        if "end" not in given:  # it ends with the run, and MMEngine refuses an end before the beginning
            low.error(low.place(*path, "begin"), text, "begin earlier, or leave it out")
        else:
            low.warning(low.place(*path, "begin"), f"{text}: it never acts")


def _direction(low: Lowering, path: Path, given: Mapping[Any, Any]) -> None:
    """Report a result whose name does not say whether more or less is better."""
    kind = str(given.get("type", "CheckpointHook" if path == ("default_hooks", "checkpoint") else "")).rpartition(".")[
        2
    ]
    key = {"CheckpointHook": "save_best", "EarlyStoppingHook": "monitor"}.get(kind)
    if key is None or given.get("rule") is not None or ("HOOKS", kind) in low.registered:
        return
    keys = [_listed(given.get(f"{word}_keys"), usual) for word, usual in _usual()]
    for name in _listed(given.get(key), ()):
        if name != "auto" and guess(name, *keys) is None and not low.has_error((*path, key)):
            text = f"{dotted((*path, key))}: whether more or less of {name!r} is better does not follow from its name"
            low.error(low.place(*path, key), text, "give rule='greater' or rule='less'")


def _usual() -> Iterator[tuple[str, tuple[str, ...]]]:
    yield from (("greater", GREATER_KEYS), ("less", LESS_KEYS))


def _listed(value: Any, default: tuple[str, ...]) -> list[str]:
    listed = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else default
    return [item for item in listed if isinstance(item, str)]


def _layer(low: Lowering, path: Path, value: Any) -> None:
    for name in _listed(value, ()):
        near = nearest(name, [word for word in _LAYERS if is_slip(name, word)])
        if near and name not in _LAYERS and not any(entry == name for _, entry in low.registered):
            text = f"{dotted(path)}: the rule is for layers called {name!r}, and fits nothing else"
            low.warning(low.place(*path), text, suggest(name, _LAYERS))
