"""Turns wrong results of user-defined models, metrics and hooks into messages that name them.

The exceptions stay those of MMEngine, for scripts that catch them. The message that the command line prints instead is
attached to them as ``etude_reported``. All of this happens only after an error, so it costs nothing in a step.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from torch import Tensor

from etude.core.forward import takes
from etude.core.hook import origin_of
from etude.errors import DataError, UserCodeError, printable
from etude.errors.own_code import is_own


def tell(error: BaseException, owner: type, method: str, what: str) -> None:
    """Let the command line report ``error`` as a mistake in ``method`` of the user-defined class ``owner``."""
    origin = origin_of(getattr(owner, method, owner))
    error.etude_reported = UserCodeError(f"{owner.__name__}.{method} ({origin}) {what}")  # type: ignore[attr-defined]


def of_losses(error: BaseException, model: Any, losses: Any) -> None:
    """Report what is wrong with the losses of ``forward(mode='loss')``, if that is why a step failed."""
    wrong = _wrong_losses(losses)
    if wrong and _is_own(type(model).parse_losses):
        tell(error, type(model), "forward", f"with mode='loss' {wrong}")


def _wrong_losses(losses: Any) -> str:
    if not isinstance(losses, Mapping):
        return f"must return a dict of losses by name, it gave {_kind(losses)}"
    for name, value in losses.items():
        if not _is_loss(value):
            return f"gave {_kind(value)} as {name!r}: a tensor is needed, or a list of tensors"
    counted = [value for name, value in losses.items() if "loss" in name]
    if not counted:
        names = printable(", ".join(map(str, losses))) or "no keys at all"
        return f"gave the keys {names}; none contains 'loss', so there is nothing to train on"
    if not any(_is_trainable(value) for value in counted):
        return "gave a loss that no parameter leads to: detached, made under no_grad, or is every parameter frozen?"
    return ""


def _is_loss(value: Any) -> bool:
    if isinstance(value, Sequence):
        return bool(value) and all(_is_loss(item) for item in value)
    return isinstance(value, Tensor)


def _is_trainable(value: Any) -> bool:
    return any(map(_is_trainable, value)) if isinstance(value, Sequence) else bool(value.requires_grad)


def of_forward(error: TypeError, model: Any, data: Any) -> None:
    """Report what ``forward`` is called with, if the arguments do not fit its signature."""
    if _is_own(type(model).forward) or takes(model, data, mode=""):
        return
    words = ", ".join(map(str, data)) if isinstance(data, Mapping) else f"{len(data)} values"
    text = f"is called with what a batch holds ({printable(words)}) and with mode: {printable(str(error))}"
    tell(error, type(model), "forward", text)


def of_pipeline(error: Exception, dataset: Any, idx: int) -> None:
    """Report which transform returned None for sample ``idx``, and so for all samples that were tried."""
    sample, transforms = dataset.get_data_info(idx), iter(getattr(dataset.pipeline, "transforms", ()))
    with suppress(Exception):
        while sample is not None:
            transform = next(transforms)
            sample = transform(sample)
        owner = transform if inspect.isroutine(transform) else type(transform)
        where = f"{getattr(owner, '__name__', owner)} ({origin_of(owner)})"
        text = f"{type(dataset).__name__} has no sample to give: its transform {where} returned None for each"
        error.etude_reported = DataError(text)  # type: ignore[attr-defined]


def of_missing_data(error: FileNotFoundError, name: Any) -> None:
    """Report that a file of the dataset ``name`` is missing, as an error in the data and not in the code."""
    name = getattr(name, "__name__", name)
    reported = DataError(f"dataset {name}: {printable(str(error))}; relative paths start at {os.getcwd()}")
    reported.__cause__ = error
    error.etude_reported = reported  # type: ignore[attr-defined]


def of_metrics(error: BaseException, metric: Any, computed: Any) -> None:
    """Report that ``compute_metrics`` did not return a dict of values by name."""
    tell(error, type(metric), "compute_metrics", f"must return a dict of values by name, it gave {_kind(computed)}")


def of_call(error: TypeError, method: Callable[..., Any]) -> None:
    """Report the arguments that a hook's method must take, if ``error`` came from calling it with them."""
    trace = error.__traceback__
    if trace is None or trace.tb_next is not None:
        return  # the error was raised inside the method, not by the call
    called = method.func if isinstance(method, partial) else method
    owner, name = type(getattr(called, "__self__", None)), getattr(called, "__name__", "")
    wanted = next((vars(kind)[name] for kind in owner.__mro__ if _is_own(kind) and name in vars(kind)), None)
    if wanted is not None:
        text = f"cannot be called as MMEngine does: {printable(str(error))}; write `{_signature_line(wanted)}`"
        tell(error, owner, name, text)


def _is_own(target: Any) -> bool:
    return is_own(target.__module__)


def _signature_line(function: Callable[..., Any]) -> str:
    """Return ``def name(self, runner, batch_idx, data_batch=None)``, without annotations."""
    given = inspect.signature(function)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in given.parameters.values()]
    plain = given.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return f"def {function.__name__}{plain}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
