"""Checks sections and values: keys that nothing reads, keys that need each other, windows that never open."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from etude.config.files import display
from etude.config.tree import Path, dotted
from etude.errors.spelling import is_slip, nearest, suggest
from etude.fast_dataclass import replace
from etude.plan import Place
from etude_openmm.mmengine.names import REGISTERED
from etude_openmm.shared.checks.lowering import Lowering
from etude_openmm.shared.project_names import MODULE2PACKAGE

_LEVELS = ("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
_SCOPES = ("mmengine", *MODULE2PACKAGE)
_BACKENDS = ("nccl", "gloo", "mpi", "ucc", "hccl")
#: Keys that the runner wants all or none of.
TOGETHER = (
    ("train_dataloader", "train_cfg", "optim_wrapper"),
    ("val_dataloader", "val_cfg", "val_evaluator"),
    ("test_dataloader", "test_cfg", "test_evaluator"),
)
#: Sections that are handed over as keyword arguments: another key stops the run.
_CLOSED = {
    ("randomness",): ("seed", "diff_rank_seed", "deterministic"),
    ("env_cfg", "mp_cfg"): ("mp_start_method", "opencv_num_threads"),
    ("custom_imports",): ("imports", "allow_failed_imports"),
    ("optim_wrapper", "clip_grad"): ("type", "max_norm", "norm_type", "error_if_nonfinite", "foreach", "clip_value"),
}
#: Sections that are asked for certain keys: another one does nothing.
_ASKED = {
    ("env_cfg",): ("cudnn_benchmark", "mp_cfg", "dist_cfg", "resource_limit"),
    ("auto_scale_lr",): ("enable", "base_batch_size"),
}
#: Where MMEngine has what mmcv 1.x calls otherwise.
_FORMER = {
    "optimizer": "optim_wrapper.optimizer", "optimizer_config": "optim_wrapper.clip_grad",
    "lr_config": "param_scheduler", "momentum_config": "param_scheduler", "evaluation": "val_evaluator and train_cfg",
    "checkpoint_config": "default_hooks.checkpoint", "log_config": "default_hooks.logger", "runner": "train_cfg",
    "total_epochs": "train_cfg.max_epochs", "max_epochs": "train_cfg.max_epochs", "max_iters": "train_cfg.max_iters",
    "data": "train_dataloader, val_dataloader and test_dataloader", "seed": "randomness.seed",
    "deterministic": "randomness.deterministic", "cudnn_benchmark": "env_cfg.cudnn_benchmark",
    "dist_params": "env_cfg.dist_cfg", "resume_from": "resume and load_from", "workflow": "train_cfg",
    "clip_grad": "optim_wrapper.clip_grad", "paramwise_cfg": "optim_wrapper.paramwise_cfg",
    "evaluator": "val_evaluator", "fp16": "optim_wrapper, as type='AmpOptimWrapper'",
}  # fmt: skip


#: Sections, and what each has to be.
_DICTS = (
    "model", "data_preprocessor", "train_cfg", "val_cfg", "test_cfg", "optim_wrapper", "default_hooks", "env_cfg",
    "auto_scale_lr", "log_processor", "visualizer", "model_wrapper_cfg",
    "train_dataloader", "val_dataloader", "test_dataloader",
)  # fmt: skip
_TYPED = ("model", "data_preprocessor", "visualizer", "param_scheduler", "val_evaluator", "test_evaluator")
_DICTS_OR_LISTS = ("param_scheduler", "val_evaluator", "test_evaluator")


def report_values(low: Lowering) -> None:
    """Add to the findings of ``low``."""
    for key in (*_DICTS, *_DICTS_OR_LISTS):
        _kind(low, key)
    _former(low)
    for keys in () if is_fragment(low.tree.values) else TOGETHER:
        _together(low, keys)
    for path, known in _CLOSED.items():
        _closed(low, path, known)
    for path, known in _ASKED.items():
        _asked(low, path, known)
    for where, value in low.tree.walk():
        if isinstance(value, Mapping):
            if where[0] == "param_scheduler":
                _window(low, where, value)
                _late_window(low, where, value)
            if "rule" in value and where[0] in ("default_hooks", "custom_hooks", "param_scheduler"):
                _one_of(low, (*where, "rule"), ("greater", "less"))
    _one_of(low, ("log_level",), _LEVELS)
    _one_of(low, ("launcher",), ("none", "pytorch", "slurm", "mpi"))
    _one_of(low, ("env_cfg", "mp_cfg", "mp_start_method"), ("fork", "spawn", "forkserver"))
    _no_slip_of(low, ("default_scope",), _SCOPES)
    _no_slip_of(low, ("env_cfg", "dist_cfg", "backend"), _BACKENDS)
    _whole(low, ("randomness", "seed"))
    _loop(low)
    _two_ways_of_bases(low)
    _resume(low)
    _scaling(low)
    _schedulers_by_name(low)


def _two_ways_of_bases(low: Lowering) -> None:
    """Report a file that imports its bases and lists others: those are ignored."""
    for file, text in low.tree.files.items():
        listed = re.search(r"^_base_\s*=", text, re.MULTILINE)
        if listed and file.endswith(".py") and re.search(r"^with read_base\(\):", text, re.MULTILINE):
            at = Place(display(file), text.count("\n", 0, listed.start()) + 1)
            hint = "import that file under `with read_base():`, or name all of them in `_base_`"
            low.error(at, "`_base_` does nothing in a file that has `with read_base():`", hint)


def _kind(low: Lowering, key: str) -> None:
    value = low.tree.get(key)
    listed = isinstance(value, list | tuple) and (key in _DICTS_OR_LISTS or _is_several(low, key, value))
    if isinstance(value, str | int | float | list | tuple) and not listed:
        words = "a dict or a list of dicts" if key in _DICTS_OR_LISTS else "a dict"
        hint = f"write dict(type={value!r})" if isinstance(value, str) and key in _TYPED else ""
        low.error(low.place(key), f"{key} must be {words}, not {value!r}", hint)


def is_fragment(values: Mapping[str, Any]) -> bool:
    """Return whether a file has neither a model nor a loop: a base of others, or a config of a tool that does not
    train."""
    return not any(key in values for key in ("model", "train_cfg", "val_cfg", "test_cfg", "optim_wrapper"))


def _former(low: Lowering) -> None:
    """Say where MMEngine has what a key of mmcv 1.x, which nothing reads, was meant to change."""
    places = {str(low.place(key)) for key in _FORMER if key in low.tree.values}
    for index, finding in enumerate(low.findings):
        key = finding.message.removeprefix("unknown key ").partition(":")[0]
        if key in _FORMER and finding.at in places:
            low.findings[index] = replace(finding, hint=f"MMEngine reads {_FORMER[key]}", severity="warning")


def _together(low: Lowering, keys: Sequence[str]) -> None:
    """Report keys that need each other. If one of them is only misspelt, report that."""
    missing = [key for key in keys if low.tree.get(key) is None]
    if not missing or len(missing) == len(keys):
        return
    for index, finding in enumerate(low.findings):
        if any(finding.hint == f"did you mean {key!r}?" for key in missing) and "unknown key" in finding.message:
            low.findings[index] = replace(finding, severity="error", message=finding.message.partition(":")[0])
            return
    empty = [key for key in missing if key in low.tree.values]
    there = next(key for key in keys if key not in missing)
    text = f"{', '.join(keys)} belong together; {', '.join(missing)} is missing"
    hint = "give None to all three for none" if empty else ""
    low.error(low.place(empty[0] if empty else there), text, hint)


def _closed(low: Lowering, path: Path, known: Sequence[str]) -> None:
    given = low.tree.get(*path)
    if given is not None and not isinstance(given, Mapping):
        low.error(low.place(*path), f"{dotted(path)} must be a dict, not {given!r}", f"it takes {', '.join(known)}")
        return
    for key in given or ():
        if key not in (*known, "_delete_") and not low.has_error((*path, key)):
            low.error(low.place(*path, key), f"unknown key {dotted((*path, key))}", suggest(str(key), known))


def _asked(low: Lowering, path: Path, known: Sequence[str]) -> None:
    given = low.tree.get(*path)
    for key in given if isinstance(given, Mapping) else ():
        near = nearest(str(key), known)
        if key not in known and not (near and is_slip(str(key), near)):
            hint = suggest(str(key), known)
            low.warning(low.place(*path, key), f"unknown key {dotted((*path, key))}: nothing reads it", hint)


def _loop(low: Lowering) -> None:
    given = low.tree.get("train_cfg")
    if not isinstance(given, Mapping):
        return
    if "type" in given and "by_epoch" in given:
        here, there = low.place("train_cfg", "by_epoch"), low.place("train_cfg", "type")
        text = "train_cfg has a `type`, which says what `by_epoch` would"
        if there.file == here.file:
            low.error(here, text, "leave one of them out")
        else:
            text = f"train_cfg has a `type`, inherited from {there}, which says what `by_epoch` would"
            drop = "`_delete_=True` in this dict" if here.line else "`train_cfg._delete_=True`"
            low.error(here, text, f"{drop} drops what it inherits")
    if given.get("val_interval", 1) == 0:
        at = low.place("train_cfg", "val_interval")
        low.error(at, "train_cfg.val_interval must be at least 1, not 0", "leave the three `val_…` keys out for none")


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
    """Report schedulers by the names of several optimizers if there is only one."""
    given, wrapper = low.tree.get("param_scheduler"), low.tree.get("optim_wrapper")
    named = isinstance(given, Mapping) and "type" not in given and bool(given)
    single = isinstance(wrapper, Mapping) and "optimizer" in wrapper and "constructor" not in wrapper
    if named and single:
        text = f"param_scheduler names optimizers ({', '.join(map(str, given))}), but there is one without a name"
        low.error(low.place("param_scheduler"), text, "write a list of schedulers")


def _window(low: Lowering, path: Path, given: Mapping[Any, Any]) -> None:
    begin, end = given.get("begin", 0), given.get("end")
    numbers = isinstance(begin, int | float) and isinstance(end, int | float)
    if numbers and end <= begin:
        low.error(low.place(*path, "end"), f"{dotted(path)} ends at {end}, which is not after its begin {begin}")


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


def _whole(low: Lowering, path: Path) -> None:
    value = low.tree.get(*path)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        low.error(low.place(*path), f"{dotted(path)} must be a whole number, not {value!r}")


def _one_of(low: Lowering, path: Path, words: Sequence[str]) -> None:
    value = low.tree.get(*path)
    if isinstance(value, str) and value not in words:
        near = nearest(value, words)
        text = f"{dotted(path)} must be one of {', '.join(words)}, not {value!r}"
        low.error(low.place(*path), text, f"did you mean {near!r}?" if near else "")


def _no_slip_of(low: Lowering, path: Path, words: Sequence[str]) -> None:
    """Report a word that is probably a misspelt usual one."""
    value = low.tree.get(*path)
    if not isinstance(value, str) or value in words:
        return
    if near := nearest(value, [known for known in words if is_slip(value, known)]):
        low.error(low.place(*path), f"{dotted(path)} is {value!r}", f"did you mean {near!r}?")


def _is_several(low: Lowering, key: str, given: Any) -> bool:
    """Return whether a list is given to a loop of a project, such as ``MultiTestLoop``, which takes several loaders."""
    loop = low.tree.get(f"{key.partition('_')[0]}_cfg", "type")
    return (
        key.endswith("_dataloader")
        and isinstance(given, list)
        and isinstance(loop, str)
        and loop.rpartition(".")[2] not in REGISTERED["LOOPS"]
    )
