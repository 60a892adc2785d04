"""Says what a part of the user's returned where it cannot be used: whose it is, what came, and what is expected.

Asked only where a step or an evaluation has failed already. A step that goes well pays nothing for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Real
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import CrossEntropyLoss, NLLLoss

from etude.core.describe import FORWARD, describe, kind, kinds, place_of_loss, shapes, step_of, where_of
from etude.core.forward import Forward, takes
from etude.errors import EtudeError, ReturnError
from etude.errors.own_code import is_own, line_of, who
from etude.losses.outputs import as_mapping

if TYPE_CHECKING:
    from etude.core.run import Run

_EXPECTED = "a loss is a tensor of one number that has a gradient"


def note_step(error: Exception, run: Run) -> None:
    """Raise the user's mistake that made a step fail. Of any other error note which step it was and, if the forward
    pass raised it, what was called with what."""
    error.etude_step = step_of(run)  # type: ignore[attr-defined]
    if run.acting == FORWARD:
        error.etude_where = where_of(error, run, run.batch)  # type: ignore[attr-defined]
    refuse_return(error, run, run.batch)


def refuse_return(error: Exception, run: Run, batch: Any, split: str = "train") -> None:
    """Raise the mistake that made a step or an evaluation fail, if it is in what a part of the user's returned."""
    if run.runner is not None or run.train_fn is not None:
        return  # another system's own step
    if isinstance(error, ReturnError):
        about = getattr(error, "etude_about", "")
        if about:
            raise ReturnError(f"{_place(run, about, split)}{error}{_from(run, about, split)}") from error.__cause__
        return
    text = "" if isinstance(error, EtudeError) else _text(error, run, batch, split)
    if text:
        raise ReturnError(text) from error


def _text(error: Exception, run: Run, batch: Any, split: str) -> str:
    if hasattr(error, "etude_loss"):
        return _of_output(run, split, *error.etude_loss)
    if isinstance(error, RuntimeError) and "must have the same dtype" in str(error):
        floats = f"{_dataset(run, split) or 'the data'} gives {kinds(batch)}, and the model computes in float32"
        return f"{_place(run, 'data', split)}{floats}: convert the samples by .float() ({error})"
    if run.acting == FORWARD and isinstance(error, TypeError):
        forward = forward_of(run)
        if forward is not None and (text := _of_call(run, forward, batch, split)):
            return text
    losses = _losses_of(error)
    return wrong_loss(run, losses) if isinstance(losses, Mapping) else ""


def _losses_of(error: Exception) -> Any:
    """Return the losses of the step that failed: they may not even have had a sum to be put into ``run.outputs``."""
    held = [frame.f_locals for frame, _ in walk_tb(error.__traceback__) if is_own(frame.f_globals.get("__name__"))]
    return next((own["losses"] for own in held if "losses" in own), None)


def wrong_loss(run: Run, losses: Mapping[str, Any], *, trains: bool = True, given: bool = False) -> str:
    """Return what is wrong with the losses of a batch; ``trains``: they need gradients; ``given``: an update of the
    user's own has computed them."""
    for name, value in losses.items():
        problem = _problem(value, trains=trains)
        if not problem:
            continue
        if isinstance(value, Tensor) and value.is_floating_point() and not value.ndim and _is_frozen(run):
            return f"{_place(run, 'model')}every parameter of the optimizers is frozen (requires_grad is False)"
        if given:
            return f"the loss {name} is {problem}; {_EXPECTED}"
        called = f"{_called(run, name)}{source_of_loss(run, name)}"
        return f"{place_of_loss(run, name)}the loss {called} returned {problem}; {_EXPECTED}"
    return ""


def _problem(value: Any, *, trains: bool) -> str:
    if not isinstance(value, Tensor):
        said = "None" if value is None else describe(value)
        return f"{said} (leave out .item())" if isinstance(value, Real) else said
    if value.ndim:
        return f"a tensor of shape {tuple(value.shape)} (let it return a mean)"
    if not value.is_floating_point():
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}, which has no gradient"
    if trains and not value.requires_grad:
        return "a tensor without a gradient (does it come from .detach(), .item(), numpy or torch.no_grad?)"
    return ""


def _of_output(run: Run, split: str, name: str, output: Any, target: Any) -> str:
    """Return what is wrong with a model's output, if the loss failed because of it."""
    model = f"{_place(run, 'model')}{who(_plain_model(run), 'forward')}"
    if output is None:
        return f"{model} returned None; a model returns its output: is there a `return`?"
    loss = _loss_of(run, name)
    theirs = loss is not None and not source_of_loss(run, name)
    if theirs and not isinstance(output, Tensor) and as_mapping(output) is None:
        return f"{model} returned {describe(output)}; the loss {_called(run, name)} takes a tensor"
    if theirs and isinstance(output, Tensor) and isinstance(target, Tensor):
        return _of_tensors(run, split, name, model, scores=output, target=target)
    if target is None or isinstance(target, str | list | tuple):
        taken = f"the loss {_called(run, name)} takes {kind(output)} with it"
        return f"{_dataset(run, split)} gives the target {describe(target)}, and {taken}"
    return ""


def _of_tensors(run: Run, split: str, name: str, model: str, *, scores: Tensor, target: Tensor) -> str:
    """Return why a loss of torch cannot compare these two, if that is plain; its own words come after it."""
    maker, called = f"{_place(run, 'data', split)}{_dataset(run, split) or 'the data'}", _called(run, name)
    gives = f"{maker} gives targets of {kind(target)}; the loss {called} takes"
    if not scores.is_floating_point():
        return f"{model} returned {kind(scores)}; the loss {called} takes floats"
    if not scores.ndim or not target.ndim or len(scores) != len(target):
        count = len(target) if target.ndim else 1
        return f"{model} returned {kind(scores)} for {count} targets; its first dimension has to be the batch"
    if not isinstance(_loss_of(run, name), CrossEntropyLoss | NLLLoss) or scores.ndim < 2:
        return ""
    if target.is_floating_point() and target.ndim == 1:
        return f"{gives} numbers of classes: int(label)"
    if target.ndim == scores.ndim and target.shape[1] == 1:
        return f"{gives} one class for each sample: leave the brackets out"
    low, high, classes = int(target.min()), int(target.max()), scores.shape[1]
    if not target.is_floating_point() and (low < 0 or high >= classes):
        wrong = low if low < 0 else high
        return f"{maker} gives the target {wrong}, and {model} gives {classes} scores: classes are 0 to {classes - 1}"
    return ""


def _of_call(run: Run, forward: Forward, batch: Any, split: str) -> str:
    """Return how a batch and the parameters of ``forward`` differ, if the model could not be called."""
    try:
        inputs = forward.split(batch)[0] if forward.losses else batch
        if takes(forward.model, inputs):
            return ""
        parameters = inspect.signature(_plain_model(run).forward).parameters
    except (EtudeError, ValueError, TypeError):
        return ""
    model = f"{_place(run, 'model')}{who(_plain_model(run), 'forward')} takes {', '.join(parameters) or 'nothing'}"
    if isinstance(inputs, Mapping):
        needed = [
            name for name, one in parameters.items() if one.default is one.empty and one.kind is not one.VAR_KEYWORD
        ]
        strange, missing = (
            [key for key in inputs if key not in parameters],
            [name for name in needed if name not in inputs],
        )
        parts = [f"it does not take {', '.join(map(str, strange))}"] * bool(strange)
        parts += [f"it misses {', '.join(missing)}"] * bool(missing)
        has = f"{', '.join(map(str, inputs))}: {' and '.join(parts)}"
        return f"{model}, and the batch has {has}{_from(run, 'data', split)}"
    count = len(inputs) if isinstance(inputs, list | tuple) else 1
    rest = " before its target" if forward.losses else ""
    return f"{model}, and the batch has {count} inputs{rest}: {shapes(batch)}{_from(run, 'data', split)}"


def require_result(name: str, metric: Any, result: Any, *, at: str = "") -> None:
    """Raise an error for what a metric computed, if it is no number and no mapping of names to numbers."""
    named = result if isinstance(result, Mapping) else {name: result}
    for key, value in named.items():
        number = value.numel() == 1 if isinstance(value, Tensor) else _is_number(value)
        if not number:
            of = f" for {key!r}" if isinstance(result, Mapping) else ""
            came = "None" if value is None else describe(value)
            raise ReturnError(
                f"{at}{': ' if at else ''}metric {name}: {who(metric, 'compute')} returned {came}{of}; "
                "a metric computes a number, or a mapping of names to numbers"
            )


def _is_number(value: Any) -> bool:
    if isinstance(value, Real):
        return True
    return getattr(value, "size", 0) == 1 and hasattr(value, "dtype") and hasattr(value, "__float__")


# -- whose it is -----------------------------------------------------------------------------------------------------


def forward_of(run: Run) -> Forward | None:
    """Return what calls the model and the losses of a native step."""
    found = getattr(run.update, "forward", None)
    found = found or getattr(run.extra_parts.get("step"), "forward", None)
    return found if isinstance(found, Forward) else None


def source_of_loss(run: Run, name: str) -> str:
    """Return the place of a loss in the user's code; empty for one of an installed package."""
    loss = _loss_of(run, name)
    if loss is None:
        return f" of {who(_plain_model(run), 'forward')}" if getattr(run, "model", None) is not None else ""
    return line_of(loss) if inspect.isfunction(loss) else line_of(getattr(type(loss), "forward", type(loss)))


def _called(run: Run, name: str) -> str:
    """Return the name of a loss: of the only one of a script, that of its class or function."""
    loss = _loss_of(run, name) if name == "loss" else None
    return name if loss is None else who(loss).partition(" ")[0]


def _loss_of(run: Run, name: str) -> Any:
    forward = forward_of(run) if hasattr(run, "update") else None
    loss = forward.losses.get(name) if forward is not None else None
    loss = getattr(loss, "loss", loss)  # of what looks at shapes
    while isinstance(loss, partial):
        loss = loss.func
    return loss


def _plain_model(run: Run) -> Any:
    return getattr(run.model, "module", run.model)


def _is_frozen(run: Run) -> bool:
    groups: Iterable[Any] = (group for optimizer in run.optimizers.values() for group in optimizer.param_groups)
    return not any(param.requires_grad for group in groups for param in group["params"])


def _place(run: Run, about: str, split: str = "train") -> str:
    """Return ``config.yaml:7: `` for the model, or a loss by its name, if a config names it."""
    if about == "model":
        return f"{run.plan.model.at}: " if run.plan is not None and run.plan.model.at.file else ""
    if about == "data":
        loader = run.plan.data.get(split) if run.plan is not None else None
        return f"{loader.dataset.at}: " if loader is not None and loader.dataset.at.file else ""
    return place_of_loss(run, about)


def _from(run: Run, about: str, split: str) -> str:
    maker = _dataset(run, split) if about == "data" else ""
    return f"; {maker} makes its samples" if maker else ""


def _dataset(run: Run, split: str) -> str:
    """Return who makes the samples, if a dataset of the user does."""
    dataset = getattr(run.data.get(split), "dataset", None)
    if dataset is None:
        return ""
    found = who(dataset, "__getitem__" if hasattr(dataset, "__getitem__") else "__iter__")
    return found if "(" in found else type(dataset).__name__
