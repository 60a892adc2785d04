"""Calls the model with a batch and computes the losses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from etude.core.describe import describe
from etude.errors import ReturnError
from etude.losses.outputs import as_mapping

Losses = dict[str, Tensor]


@dataclass
class Forward:
    """Splits a batch into inputs and target, calls the model, and computes the losses.

    With a ``loss``: a sequence is inputs then target, a mapping has its target under one of ``target_keys``, and the
    model gets the rest. Without: the model gets the whole batch and returns its losses, a tensor or a mapping whose
    keys with ``loss`` in their name are summed.

    >>> forward = Forward(torch.nn.Identity(), {"mse": torch.nn.MSELoss()})
    >>> losses, output, target = forward((torch.zeros(2), torch.ones(2)))
    >>> losses["mse"].item(), forward({"input": torch.zeros(2), "target": torch.ones(2)})[0]["mse"].item()
    (1.0, 1.0)
    """

    model: torch.nn.Module
    losses: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict)
    target_keys: tuple[str, ...] = ("target", "targets", "label", "labels", "y")

    def __call__(self, batch: Any) -> tuple[Losses, Any, Any]:
        """Return the losses by name, the model's output, and the target (None if the model keeps it to itself)."""
        if not self.losses:
            return self._own_losses(batch)
        inputs, target = self.split(batch)
        output = self.call(inputs)
        losses: Losses = {}
        for name, loss in self.losses.items():
            try:
                losses[name] = loss(output, target)
            except Exception as error:
                error.etude_loss = name, output, target  # type: ignore[attr-defined]
                error.etude_about = name  # type: ignore[attr-defined]
                raise
        return losses, output, target

    def _own_losses(self, batch: Any) -> tuple[Losses, Any, Any]:
        """Call a model that computes its own losses. If it does not accept the whole batch, the config probably
        lacks a loss."""
        try:
            output = self.call(batch)
        except TypeError as error:
            if takes(self.model, batch):
                raise
            raise _about(
                "model",
                f"no `loss` is named, so the model is called with the whole batch ({describe(batch)}) and returns its "
                f"losses; {type(self.model).__name__} does not take it: {error}",
            ) from error
        return named_losses(output), output, self.target(batch)

    def split(self, batch: Any) -> tuple[Any, Any]:
        """Return the inputs and the target of a batch."""
        if isinstance(batch, Sequence) and len(batch) >= 2:
            return batch[:-1], batch[-1]
        return self._split_mapping(batch)

    def _split_mapping(self, batch: Any) -> tuple[Any, Any]:
        if isinstance(batch, Mapping):
            key = next((key for key in self.target_keys if key in batch), None)
            if key is not None:
                return {name: value for name, value in batch.items() if name != key}, batch[key]
        raise _about(
            "data",
            f"a loss needs batches of (inputs, target) or a mapping with one of {', '.join(self.target_keys)}; "
            f"this batch is {describe(batch)}",
        )

    def target(self, batch: Any) -> Any:
        """Return the target of a batch, None where it has none."""
        if isinstance(batch, Mapping):
            return next((batch[key] for key in self.target_keys if key in batch), None)
        return batch[-1] if isinstance(batch, Sequence) and len(batch) >= 2 else None

    def call(self, inputs: Any) -> Any:
        """Call the model with the inputs: a sequence as arguments, a mapping as keywords."""
        if isinstance(inputs, list | tuple):
            return self.model(*inputs)
        return self.model(**inputs) if isinstance(inputs, Mapping) else self.model(inputs)


def takes(model: torch.nn.Module, inputs: Any, **settings: Any) -> bool:
    """Return whether ``model.forward`` can be called with ``inputs`` as :meth:`Forward.call` does."""
    plain = getattr(model, "module", model)
    positional = inputs if isinstance(inputs, list | tuple) else () if isinstance(inputs, Mapping) else (inputs,)
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    try:
        inspect.signature(plain.forward).bind(*positional, **named, **settings)
    except TypeError:
        return False
    except ValueError:  # one that is written in C has no signature
        return True
    return True


def named_losses(output: Any) -> Losses:
    """Return the losses of a model without a separate loss, by name."""
    if isinstance(output, Tensor) and output.ndim == 0:
        return {"loss": output}
    named = as_mapping(output)
    if named is not None:
        losses = {key: _mean(value) for key, value in named.items() if "loss" in key and value is not None}
        if losses:
            return losses
    raise _about(
        "model",
        "the model returned no loss: name one under `loss`, or return a scalar tensor or a mapping with a key "
        f"that contains 'loss'; it returned {describe(output)}",
    )


def _mean(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value if value.ndim == 0 else value.mean()
    if isinstance(value, Sequence) and all(isinstance(item, Tensor) for item in value):
        return reduce(add, map(_mean, value))
    raise _about("model", f"a loss must be a tensor or a list of tensors, not {describe(value)}")


def _about(part: str, text: str) -> ReturnError:
    """Return the error for what a part of the user's returned; whose it is, is added where the run is known."""
    error = ReturnError(text)
    error.etude_about = part  # type: ignore[attr-defined]
    return error
