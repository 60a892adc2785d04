"""Tries the validation with one batch before training, so that its mistakes show before the first epoch.

What a run computes is the same with and without it: random generators, the position of the data, metrics, buffers of
the model and the state of the run are as before. The dataset is asked through a copy.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from etude.core.evaluation import Evaluation
from etude.core.update import Step
from etude.data.loader import Loader
from etude.data.order import Limited
from etude.data.resume import Replay, Snapshot
from etude.errors import ConfigError, EtudeError
from etude.errors.spelling import suggest
from etude.hooks.evaluate import Evaluate

if TYPE_CHECKING:
    from etude.core.run import Run

#: Larger containers of a dataset are not copied, and neither are tensors and arrays: they are its data.
_LARGE = 1000


def try_validation(run: Run) -> None:
    """Evaluate one batch of each split that the run will evaluate, and find results that hooks watch and nothing gives.

    Only where that can be done exactly: not with several processes, compiled or lazy modules, or data that cannot be
    read without moving its position, such as a stream.
    """
    if run.step or run.peers is not None or type(run.evaluation) is not Evaluation or not _can_be_called(run):
        return
    names: set[str] = set()
    certain = True
    hooks = [hook for hook in run.hooks if isinstance(hook, Evaluate)]
    for split in dict.fromkeys(split for hook in hooks for split in (hook.split, *hook.also)):
        with _untouched(run):
            batch = _first_batch(run.data.get(split))
            if batch is None:
                return
            try:
                found = _tried(run, batch, run.data[split])
            except Exception:
                if _training_fails(run):  # with the same mistake, which the first step will tell in its own words
                    return
                raise
        further = any(split in hook.also for hook in hooks)
        names |= {f"{split}/{name}" if further else name for name in found or ()}
        certain = certain and found is not None
    if names and certain:
        _require_results(run, names)


def _can_be_called(run: Run) -> bool:
    compiled = run.plan is not None and bool(run.plan.train.compile)
    lazy = any(torch.nn.parameter.is_lazy(one) for one in (*run.model.parameters(), *run.model.buffers()))
    own = any(type(module).__name__ == "OptimizedModule" for module in run.model.modules())
    return not (compiled or lazy or own)


def _tried(run: Run, batch: Any, loader: Any) -> dict[str, float] | None:
    """Return the results for one batch; None if a metric cannot compute one of so few samples."""
    tried = copy.copy(run.evaluation)
    tried.metrics = {name: _copied(metric) for name, metric in run.evaluation.metrics.items()}
    tried._looked, tried._told = set(), set()  # the evaluation itself reports what is odd
    tried.begin()
    run.batch, tried.loader = batch, loader
    tried.step(run, batch)
    try:
        found: dict[str, float] = tried.end()
        return found
    except EtudeError:
        raise
    except Exception:  # a score of ranks needs several classes, and one batch may have one
        return None


def _training_fails(run: Run) -> bool:
    batch = _first_batch(run.data.get("train"))
    if batch is None:
        return False
    forward = run.evaluation.forward
    tried = Evaluation(forward, {}, autocast=run.evaluation.autocast)
    tried._own = None  # training does without the model's own validation
    try:
        if isinstance(run.update, Step):
            forward(batch)
        tried.step(run, batch)
    except Exception:
        return True
    return False


def _require_results(run: Run, names: set[str]) -> None:
    for hook in run.hooks:
        for wanted in getattr(hook, "watches", ()):
            if wanted not in names:
                specs = [one.spec for one in run.plan.hooks if one.spec.name == hook.name] if run.plan else []
                at = next(
                    (str(spec.place(key)) for spec in specs for key in ("best", "metric") if key in spec.args), ""
                )
                text = f"{hook.name}: no metric gives {wanted!r}"
                raise ConfigError(text, at=at, hint=suggest(wanted, names))


@contextmanager
def _untouched(run: Run) -> Iterator[None]:
    """Put everything back that calling a model and a dataset may move."""
    generators, before = Snapshot.take(), (run.batch, run.outputs, run.acting)
    modes = [(module, module.training) for module in run.model.modules()]
    kept = [(buffer, buffer._version, buffer.clone()) for buffer in run.model.buffers()]
    run.model.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the evaluation itself will warn
            yield
    finally:
        for module, training in modes:
            module.training = training
        _put_back(kept)
        run.batch, run.outputs, run.acting = before
        generators.restore()


@torch.no_grad()
def _put_back(kept: Iterable[tuple[Tensor, int, Tensor]]) -> None:
    for buffer, version, value in kept:
        if buffer._version != version:
            buffer.copy_(value)


# -- one batch -------------------------------------------------------------------------------------------------------


def _first_batch(loader: Any) -> Any:
    """Return the first batch without moving the loader; None where that cannot be done."""
    while isinstance(loader, Limited):
        loader = loader.loader
    if isinstance(loader, Loader):
        return loader.peek(_copied(loader.dataset))
    data = loader.loader if isinstance(loader, Replay) else loader
    if isinstance(data, list | tuple) and data:
        return data[0]
    if type(data) is torch.utils.data.DataLoader and data.batch_size and hasattr(data.dataset, "__getitem__"):
        dataset = _copied(data.dataset)
        count = min(data.batch_size, len(dataset))
        return data.collate_fn([dataset[index] for index in range(count)]) if count else None
    return None


def _copied(part: Any) -> Any:
    """Return a copy that shares data with ``part``, and nothing that a call might change; itself if it has no copy."""
    shared: dict[int, Any] = {}
    for value in vars(part).values() if hasattr(part, "__dict__") else ():
        if _is_data(value):
            shared[id(value)] = value
    try:
        return copy.deepcopy(part, shared)
    except Exception:  # an open file, say
        return part


def _is_data(value: Any) -> bool:
    if isinstance(value, list | tuple | dict | set | str | bytes):
        return len(value) > _LARGE
    return (
        hasattr(value, "nbytes") and getattr(value, "nbytes", 0) > _LARGE and not isinstance(value, torch.nn.Parameter)
    )
