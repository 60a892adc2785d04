"""Looks into one training step: outputs, gradients and updates of each module; the first value that is not finite."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from etude.core.hook import Hook
from etude.core.run import Run
from etude.ledger.writer import samples_of


@dataclass
class ModuleNote:
    """What one module with parameters did in a step; None where nothing was seen."""

    name: str
    kind: str
    #: Largest absolute value that it returned.
    largest_output: float | None = None
    gradient_norm: float | None = None
    update_norm: float | None = None
    weight_norm: float | None = None


class Anatomy(Hook):
    """Records one step. Add it to a run before that step; all other steps are left alone."""

    priority = -(1 << 30)

    def __init__(self, step: int) -> None:
        self.step = step
        self.modules: dict[str, ModuleNote] = {}
        #: The first module whose output is not finite, and what came in: ``finite`` or ``not finite``.
        self.first_bad: tuple[str, str] | None = None
        self.batch: Any = None
        self.outputs: Any = None
        self.gradients: dict[str, Tensor] = {}
        self.samples: Any = None
        self._before: dict[str, Tensor] = {}
        self._handles: list[Any] = []

    def before_step(self, run: Run) -> None:
        if run.step + 1 != self.step:
            return
        self.batch = run.batch
        self._handles.append(register_optimizer_step_pre_hook(lambda *_: self._keep_gradients(run)))
        for name, module in run.model.named_modules():
            if name and (not any(module.children()) or _own_parameters(module)):
                self.modules[name] = ModuleNote(name, type(module).__name__)
                self._handles.append(module.register_forward_hook(self._watch(name)))
        self._before = {name: value.detach().clone() for name, value in run.model.named_parameters()}

    def _watch(self, name: str) -> Any:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            note, values = self.modules[name], list(_floats(output))
            largest = [float(value.detach().abs().max()) for value in values if value.numel()]
            if largest:
                note.largest_output = max([*largest, note.largest_output or 0.0])
            if self.first_bad is None and not all(map(_is_finite, values)):
                came = "finite" if all(map(_is_finite, _floats(inputs))) else "not finite"
                self.first_bad = name, came

        return look

    def before_update(self, run: Run) -> None:
        if run.step + 1 == self.step:
            self._keep_gradients(run)

    def _keep_gradients(self, run: Run) -> None:
        """Keep the gradients that an optimizer is about to use. Runners of other systems have no ``before_update``."""
        for name, value in run.model.named_parameters():
            if value.grad is not None and name not in self.gradients:
                self.gradients[name] = value.grad.detach().clone()

    def after_step(self, run: Run) -> None:
        # The runner of another system may update in a hook.
        if run.step + 1 == self.step and run.train_fn is None:
            self.finish(run)

    def finish(self, run: Run) -> None:
        """Compute what is known of the step; one whose loss is not finite has no update."""
        for handle in self._handles:
            handle.remove()
        self.outputs, self.samples = run.outputs, samples_of(run)
        self.batch = run.batch if self.batch is None else self.batch
        values = dict(run.model.named_parameters())
        for name, note in self.modules.items():
            own = [f"{name}.{inner}" for inner in _own_parameters(run.model.get_submodule(name))]
            own = [parameter for parameter in own if parameter in values]
            if own:
                note.gradient_norm = _norm(self.gradients[one] for one in own if one in self.gradients)
                if self.gradients:
                    note.update_norm = _norm(values[one].detach() - self._before[one] for one in own)
                note.weight_norm = _norm(self._before[one] for one in own)
        self._before = {}


def losses_per_sample(run: Run, outputs: Any) -> list[float] | None:
    """Return the loss of each sample in the last batch, if the run's loss can tell."""
    forward = getattr(run.update, "forward", None)
    losses = list(getattr(forward, "losses", {}).values())
    if not isinstance(outputs, Mapping) or outputs.get("target") is None or len(losses) != 1:
        return None
    alone = _without_reduction(losses[0])
    if alone is None:
        return None
    try:
        with torch.no_grad():
            each = alone(outputs["output"], outputs["target"])
    except Exception:  # a loss of one's own that cannot do without a reduction
        return None
    size = len(outputs["target"])
    if each.ndim == 0 or len(each) != size:
        return None
    found: list[float] = each.reshape(size, -1).double().mean(1).tolist()
    return found


def _without_reduction(loss: Any) -> Any:
    """Return a copy of a loss that keeps the values of samples apart; None for one that cannot."""
    inner, made = getattr(loss, "loss", None), copy.copy(loss)
    if inner is not None:  # Étude's wrapper, which fits shapes
        made.loss = _without_reduction(inner)
        return None if made.loss is None else made
    if getattr(loss, "reduction", None) not in ("mean", "sum"):
        return None
    made.reduction = "none"
    return made


def _own_parameters(module: nn.Module) -> list[str]:
    return [name for name, _ in module.named_parameters(recurse=False)]


def _floats(value: Any) -> Iterator[Tensor]:
    """Yield the floating-point tensors in nested values."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _floats(item)


def _is_finite(value: Tensor) -> bool:
    return bool(torch.isfinite(value).all())


def _norm(values: Iterator[Tensor] | Any) -> float | None:
    norms = [float(value.double().norm()) for value in values]
    return sum(norm**2 for norm in norms) ** 0.5 if norms else None
