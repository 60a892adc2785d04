"""What is wrong with values, not with words: a number in quotes, windows that never open, keys that need each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etude import scan
from etude.config.conform import Misfit, Want, conform, declared
from etude.config.tree import Path, dotted
from etude.dialects.openmm.external import MODULE2PACKAGE
from etude.dialects.openmm.lowering import Lowering
from etude.errors import is_slip, nearest, suggest
from etude.index import kept

#: Types that no file can write; the rest of a union says what is written instead.
_NOT_WRITTEN = {"Tensor", "torch.Tensor", "Path", "torch.dtype", "Priority"}
_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
_SCOPES = ("mmengine", *MODULE2PACKAGE)
_BACKENDS = ("nccl", "gloo", "mpi", "ucc", "hccl")
#: Keys that the runner wants all or none of.
TOGETHER = (
    ("train_dataloader", "train_cfg", "optim_wrapper"),
    ("val_dataloader", "val_cfg", "val_evaluator"),
    ("test_dataloader", "test_cfg", "test_evaluator"),
)


def tell_values(low: Lowering, names: Mapping[str, str], defaults: Mapping[tuple[str, ...], str]) -> None:
    """Add to the findings of ``low``; ``names`` are components by name, ``defaults`` those of dicts without a type."""
    for keys in TOGETHER:
        _together(low, keys)
    for path, value in low.tree.walk():
        if isinstance(value, Mapping):
            kind = value.get("type", defaults.get(tuple(map(str, path))))
            target = names.get(kind.rpartition(".")[2]) if isinstance(kind, str) else None
            if target:
                _arguments(low, path, value, target)
            if path[:1] == ("param_scheduler",):
                _window(low, path, value)
    _one_of(low, ("log_level",), _LEVELS)
    _no_slip_of(low, ("default_scope",), _SCOPES)
    _no_slip_of(low, ("env_cfg", "dist_cfg", "backend"), _BACKENDS)
    _needed(low)


def written(annotation: str) -> str:
    """The part of an annotation that a file can write."""
    parts = [part.strip() for part in annotation.split("|")] if "[" not in annotation else [annotation]
    return " | ".join(part for part in parts if part not in _NOT_WRITTEN) or "Any"


def _together(low: Lowering, keys: Sequence[str]) -> None:
    missing = [key for key in keys if low.tree.get(key) is None]
    if missing and len(missing) < len(keys):
        low.error(
            low.place(next(key for key in keys if key not in missing)),
            f"{', '.join(keys)} belong together; {', '.join(missing)} is missing",
            _meant(missing[0], map(str, low.tree.values)),
        )


def _arguments(low: Lowering, path: Path, given: Mapping[Any, Any], target: str) -> None:
    """Text or a container where the class wants a number or a switch."""
    signature = scan.signature(target, known=kept)
    for parameter in signature.parameters if signature else ():
        value, annotation = given.get(parameter.key), written(parameter.annotation)
        if isinstance(value, str | list | dict) and _is_scalar(declared(annotation)):
            try:
                conform(value, annotation)
            except Misfit as misfit:
                where = (*path, parameter.key)
                low.error(low.place(*where), f"{dotted(where)} must be {misfit}", misfit.hint)
    if "rule" in given:
        _one_of(low, (*path, "rule"), ("greater", "less"))


def _is_scalar(want: Want) -> bool:
    return all(part[0] in ("int", "float", "bool", "none") for part in (want[1:] if want[0] == "union" else (want,)))


def _window(low: Lowering, path: Path, given: Mapping[Any, Any]) -> None:
    begin, end = given.get("begin", 0), given.get("end")
    numbers = isinstance(begin, int | float) and isinstance(end, int | float)
    if numbers and end <= begin:
        low.error(low.place(*path, "end"), f"{dotted(path)} ends at {end}, which is not after its begin {begin}")


def _one_of(low: Lowering, path: Path, words: Sequence[str]) -> None:
    value = low.tree.get(*path)
    if isinstance(value, str) and value not in words:
        low.error(
            low.place(*path), f"{dotted(path)} must be one of {', '.join(words)}, not {value!r}", suggest(value, words)
        )


def _no_slip_of(low: Lowering, path: Path, words: Iterable[str]) -> None:
    """A free word that is one slip away from a usual one."""
    value = low.tree.get(*path)
    hint = _meant(value, words) if isinstance(value, str) and value not in words else ""
    if hint:
        low.error(low.place(*path), f"{dotted(path)} is {value!r}", hint)


def _meant(word: str, words: Iterable[str]) -> str:
    near = nearest(word, [known for known in words if is_slip(word, known)])
    return f"did you mean {near!r}?" if near else ""


def _needed(low: Lowering) -> None:
    """Arguments that a class of the user's own seems to need; its source may not show all, so it is a warning."""
    for path, table in (
        (("model",), "MODELS"),
        (("train_dataloader", "dataset"), "DATASETS"),
        (("val_evaluator",), "METRICS"),
    ):
        given: Any = low.tree.get(*path)
        target = low.registered.get((table, str(given.get("type")))) if isinstance(given, Mapping) else None
        signature = scan.signature(target, folders=low.folders, known=kept) if target else None
        if signature is None or signature.open:
            continue
        for parameter in signature.parameters:
            if parameter.required and parameter.key not in given:
                low.warning(low.place(*path), f"{given['type']} needs the parameter {parameter.key!r}")
