"""Checks of arguments: the exception that users of mmcv know, which is also a finding of Étude."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

import etude
from etude.config.files import display
from etude.dialects.openmm.errors import ConfigAssertionError
from etude.errors import DataError, EtudeError, UserCodeError, printable, release_hint

if TYPE_CHECKING:
    from etude.dialects.mmcv1.live.runner.base_runner import BaseRunner


_LIBRARIES = (os.path.dirname(os.path.abspath(etude.__file__)) + os.sep, "<frozen", sys.base_prefix)


class MissingOutput(UserCodeError, KeyError):
    """A model's step does not return what the runner or a hook needs."""

    __str__ = Exception.__str__


class WrongOutputs(UserCodeError, TypeError):
    """A model's step does not return a dict."""


def explain_data_error(error: Exception, where: str) -> None:
    """Let the command line report ``error``, which came while a batch was drawn, as one of the data."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    kind = type(error).__name__
    said = lines[-1].removeprefix(f"{kind}: ") if lines else ""
    traced = re.findall(r'File "([^"]+)", line (\d+)', str(error))  # what a worker reports its traceback
    own = [f"{file}:{line}" for file, line in traced if _is_users(file)]
    place = raised_by_user(error) or next(iter(own[::-1]), ":".join(traced[-1]) if traced else "")
    reported = DataError(f"{where}: {kind}: {printable(said)}{f' ({place})' if place else ''}{release_hint(said)}")
    reported.__cause__ = error
    error.etude_reported = reported  # type: ignore[attr-defined]


def raised_by_user(error: BaseException) -> str | None:
    """``file:line`` where code of the user raised ``error``, or what a registry made it of; else None."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not _is_users(frames[-1].filename):
        return None
    return f"{display(frames[-1].filename)}:{frames[-1].lineno}"


def _is_users(file: str) -> bool:
    return not file.startswith(_LIBRARIES) and "site-packages" not in file


def require(ok: bool, message: str) -> None:
    """Raise an ``AssertionError``, as mmcv does for these arguments, also under ``python -O``."""
    if not ok:
        raise ConfigAssertionError(message)


def explain_step_error(error: Exception, runner: BaseRunner, batch: Any) -> None:
    """Let the command line say what the labels of ``batch`` have to do with ``error``, which a head of ours raised."""
    if isinstance(error, EtudeError) or hasattr(error, "etude_reported"):
        return
    if not hasattr(error, "etude_labels"):
        return
    labels, known = error.etude_labels
    said = _missing(batch, runner) or _beyond(labels, known, runner)
    if said:
        reported = UserCodeError(f"model {runner.model_name}, step {runner.iter + 1}: {said}")
        error.etude_reported = reported  # type: ignore[attr-defined]


def _missing(batch: Any, runner: BaseRunner) -> str:
    if not isinstance(batch, Mapping) or "gt_label" in batch:
        return ""
    keys = printable(", ".join(map(str, batch)))
    at = _place(runner, "data", "train", "pipeline")
    return f"the batch has no gt_label, it holds {keys}; the last transforms of data.train.pipeline{at} must collect it"


def _beyond(labels: Any, known: int | None, runner: BaseRunner) -> str:
    if not isinstance(labels, torch.Tensor) or labels.is_floating_point() or labels.ndim != 1 or known is None:
        return ""
    if int(labels.max()) < known and int(labels.min()) >= 0:
        return ""
    at = _place(runner, "model", "head", "num_classes")
    return f"labels of the batch go from {int(labels.min())} to {int(labels.max())}, and num_classes is {known}{at}"


def _place(runner: BaseRunner, *path: str) -> str:
    place = getattr(runner.engine.plan, "places", {}).get(path)
    return f" ({place})" if place is not None else ""
