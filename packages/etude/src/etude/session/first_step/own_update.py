"""Looks at the first step: whether an update of the user's own trains, what it returns for the log, and whether a
model's output is what the loss takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from etude.core.describe import place_of_loss
from etude.core.hook import Hook, origin_of
from etude.core.update import Step
from etude.errors import ConfigError, ReturnError
from etude.errors.own_code import is_own
from etude.losses.outputs import scores

if TYPE_CHECKING:
    from etude.core.run import Run

#: Steps within which an update that computes gradients has to use them. One may accumulate over many batches.
_PATIENCE = 100
#: Numbers of each parameter that are compared where torch has counted no change: code may write to ``param.data``.
_LOOKED_AT = 16
_OF_CLASSES = (torch.nn.NLLLoss, torch.nn.CrossEntropyLoss)


def watch(run: Run) -> None:
    """Look at the update's first step, if it is the user's own. One that begins to train later says so by an
    attribute ``trains_later = True``."""
    plain = _plain(run.update)
    if isinstance(plain, Step) and any(isinstance(_loss(one), _OF_CLASSES) for one in plain.forward.losses.values()):
        run.hooks.add(FirstOutput())
    if not is_own(getattr(plain, "__module__", None) or type(plain).__module__):
        run.hooks.add(FirstStep(plain))


class FirstStep(Hook):
    """Raises an error if the update has changed no parameter, and lets what it returned be recorded from then on.

    Once that is known, it leaves the hooks of the run: later steps cost nothing.
    """

    priority = 15

    def __init__(self, update: Any) -> None:
        self._update = update
        self._marks: list[tuple[Tensor, int, Tensor]] = []
        self._steps = 0

    def before_step(self, run: Run) -> None:
        if not self._marks:
            self._marks = [(param, _version(param), _sample(param)) for param in _parameters(run)]

    def after_step(self, run: Run) -> None:
        self._steps += 1
        later = bool(getattr(self._update, "trains_later", False))
        if not later and not self._has_learnt():
            learns = _pending(run) or any(param.grad is not None for param, _, _ in self._marks)
            if learns and self._steps < _PATIENCE:
                return
            raise self._mistake(run, learns)
        run.hooks.remove(self)
        values = numbers_in(run.outputs)
        kept = frozenset(values).difference(run.events.pending_names())
        if kept:
            recorder = Returned(kept)
            recorder.after_step(run)
            run.hooks.add(recorder)

    def _has_learnt(self) -> bool:
        return any(
            _version(param) != version or not torch.equal(_sample(param), sample)
            for param, version, sample in self._marks
        )

    def _mistake(self, run: Run, learns: bool) -> ConfigError:
        name = getattr(self._update, "__qualname__", type(self._update).__qualname__)
        place = origin_of(self._update if hasattr(self._update, "__qualname__") else type(self._update))
        who = f"the update {name} ({place})"
        remedy = "call step.learn(run, loss)" if _uses_step(run) else "take `step` and call step.learn(run, loss)"
        if learns:
            text = f"{who} has computed gradients in {self._steps} steps and changed no parameter"
        elif any(value.requires_grad for value in _tensors_in(run.outputs)):
            text = f"{who} returns its loss, and nothing learns from what an update returns: no parameter has changed"
        else:
            text = f"{who} has changed no parameter in its first step, and computed no gradients"
        at = str(run.plan.update.at) if run.plan is not None else ""
        return ConfigError(text, at=at, hint=f"{remedy}; if it begins to train later, write {name}.trains_later = True")


class FirstOutput(Hook):
    """Looks at the model's first output: logits, probabilities and their logarithms are tensors alike, and a loss that
    is given the wrong ones learns something else in silence."""

    priority = 15

    def after_forward(self, run: Run) -> None:
        run.hooks.remove(self)
        output = scores(run.outputs["output"])
        if not isinstance(output, Tensor) or output.ndim != 2 or not output.is_floating_point():
            return
        seen = output.detach().float()
        target = run.outputs["target"]
        for name, loss in run.update.forward.losses.items():  # type: ignore[attr-defined]
            if isinstance(_loss(loss), _OF_CLASSES) and isinstance(target, Tensor) and target.ndim == 1:
                _tell_of_classes(run, name, output.shape[1])
            if isinstance(_loss(loss), torch.nn.NLLLoss) and bool((seen > 1e-3).any()):
                most = f"{float(seen.max()):.3g}"
                raise ReturnError(
                    f"{place_of_loss(run, name)}NLLLoss takes log-probabilities, and the model's outputs reach {most}: "
                    "end the model with log_softmax, or use CrossEntropyLoss"
                )
            sums_to_one = bool((seen >= 0).all() and (seen.sum(1) - 1).abs().max() < 1e-3)
            if isinstance(_loss(loss), torch.nn.CrossEntropyLoss) and sums_to_one and seen.shape[1] > 1:
                warnings.warn(
                    f"{place_of_loss(run, name)}the model's outputs are probabilities, and CrossEntropyLoss takes "
                    "logits: it applies softmax once more. Leave out the model's softmax",
                    stacklevel=2,
                )


def _tell_of_classes(run: Run, loss: str, outputs: int) -> None:
    """Warn of scores for classes that the data does not have: a head of another size trains, and looks fine."""
    loader = run.data.get("train")
    classes = classes_of(getattr(loader, "dataset", getattr(getattr(loader, "loader", None), "dataset", None)))
    if classes is not None and outputs > classes:
        text = f"the model gives {outputs} scores, and the training data has {classes} classes"
        warnings.warn(f"{place_of_loss(run, loss)}{text}", stacklevel=2)


def classes_of(dataset: Any) -> int | None:
    """Return how many classes a dataset has, through wrappers; None if it does not tell.

    >>> from etude.data import TensorData
    >>> classes_of(TensorData(torch.zeros(3, 2), torch.tensor([0, 4, 1])))
    5
    """
    while dataset is not None:
        named = getattr(dataset, "classes", None)
        if isinstance(named, int | list | tuple) and not isinstance(named, bool):
            return named if isinstance(named, int) else len(named)
        labels = (getattr(dataset, "tensors", None) or (None,))[-1]
        if isinstance(labels, Tensor) and labels.ndim == 1 and labels.dtype == torch.int64 and len(labels):
            return int(labels.max()) + 1
        dataset = getattr(dataset, "dataset", None)
    return None


def _loss(loss: Any) -> Any:
    return getattr(loss, "loss", loss)


class Returned(Hook):
    """Records the numbers that a user-defined update returns: a loss, or a mapping of names to numbers."""

    priority = 15

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def after_step(self, run: Run) -> None:
        for name, value in numbers_in(run.outputs).items():
            if name in self._names:
                run.events.put(name, value)


def numbers_in(returned: Any) -> dict[str, Any]:
    """Return the numbers in what an update returned; a single one is called ``loss``.

    >>> numbers_in(0.5), numbers_in({"d": 1.0, "images": torch.zeros(2, 3)}), numbers_in(None)
    ({'loss': 0.5}, {'d': 1.0}, {})
    """
    named = returned if isinstance(returned, Mapping) else {"loss": returned}
    return {
        str(name): value.detach() if isinstance(value, Tensor) else value
        for name, value in named.items()
        if (isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex())
        or (isinstance(value, Real) and not isinstance(value, bool))
    }


def _plain(update: Any) -> Any:
    while isinstance(update, partial):
        update = update.func
    return update


def _parameters(run: Run) -> Iterable[Tensor]:
    held = [p for optimizer in run.optimizers.values() for group in optimizer.param_groups for p in group["params"]]
    return {id(param): param for param in (*run.model.parameters(), *held)}.values()


def _version(param: Tensor) -> int:
    """Return how often torch has seen the parameter change in place; a step with a learning rate of 0 counts."""
    return 0 if param.is_inference() else int(param._version)


def _sample(param: Tensor) -> Tensor:
    return param.detach().reshape(-1)[:_LOOKED_AT].clone()


def _pending(run: Run) -> bool:
    """Return whether the engine's step holds gradients of an incomplete group, or has refused a loss."""
    step = run.extra_parts.get("step")
    return isinstance(step, Step) and step.has_begun


def _uses_step(run: Run) -> bool:
    if isinstance(run.update, partial):
        return "step" in run.update.keywords
    return any(isinstance(value, Step) for value in getattr(run.update, "__dict__", {}).values())


def _tensors_in(returned: Any) -> list[Tensor]:
    values = returned.values() if isinstance(returned, Mapping) else returned
    items = values if isinstance(returned, Mapping | list | tuple) else [returned]
    return [value for value in items if isinstance(value, Tensor)]
