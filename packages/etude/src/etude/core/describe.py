"""Describes errors in a step: which part failed, where the config names that part, and what it was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from etude.errors import UserCodeError

if TYPE_CHECKING:
    from etude.core.run import Run

_SHOWN_IDS = 8


#: ``run.acting`` while the model and its losses are called; the account of a run's time has the same words.
FORWARD = "forward/backward"


def where_of(error: BaseException, run: Run, batch: Any) -> str:
    """Return what failed in a forward pass, and where the config names it: a loss, or the model."""
    if hasattr(error, "etude_loss") and not isinstance(error, UserCodeError):  # which says itself what is wrong
        name, output, target = error.etude_loss
        place = f"{place_of_loss(run, name)}loss {name}, step {run.step + 1}"
        return f"{place}, output {kind(output)}, target {kind(target)}"
    at = f"{run.plan.model.at}: " if run.plan is not None and run.plan.model.at.file else ""
    return f"{at}model {type(run.model).__name__}, step {run.step + 1}, {shapes(batch)}"


def step_of(run: Run) -> str:
    """Return the words for an error anywhere in a step: ``model Net, step 12``."""
    return f"model {type(getattr(run.model, 'module', run.model)).__name__}, step {run.step + 1}"


def place_of_loss(run: Run, name: str) -> str:
    """Return ``config.yaml:7: `` for a loss that the config names."""
    specs = run.plan.losses if run.plan is not None else ()
    return next((f"{spec.at}: " for spec in specs if spec.name.rpartition(".")[2] == name.partition("#")[0]), "")


def last_good(run: Run) -> str:
    """Name the checkpoint from which a diverged run can resume."""
    good = getattr(run.store, "newest", None)
    return f"last good checkpoint: {good()}" if good and good() else "no checkpoint was saved yet"


def batch_ids(run: Run) -> str:
    """Name the samples of the batch, if its loader knows them."""
    ask = getattr(run.data.get("train"), "sample_ids", None)
    ids = ask() if ask is not None else []
    shown = ", ".join(map(str, ids[:_SHOWN_IDS])) + (", …" if len(ids) > _SHOWN_IDS else "")
    return f", batch ids {shown}" if ids else ""


def kind(value: Any) -> str:
    """Describe a tensor: ``(64, 10) float32``."""
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return describe(value)


def shapes(batch: Any) -> str:
    """Describe a batch: ``batch of (64, 1, 8, 8) and (64,)``."""
    if isinstance(batch, Mapping):
        named = list(batch.items())
    else:
        named = [("", part) for part in (batch if isinstance(batch, list | tuple) else [batch])]
    words = [f"{name} {tuple(part.shape)}".strip() for name, part in named if isinstance(part, Tensor)]
    return f"batch of {' and '.join(words) or type(batch).__name__}"


def kinds(batch: Any) -> str:
    """Describe the tensors of a batch with their types: ``(64, 10) float64 and (64,) int64``."""
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else [batch]
    return " and ".join(kind(part) for part in parts)


def describe(value: Any) -> str:
    """Describe any value: ``a tensor of shape (64, 10)``, ``a dict with keys x, y``, ``a list of 2``."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with keys {', '.join(map(str, value)) or 'none'}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
