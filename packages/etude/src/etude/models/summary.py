"""Summarizes a model: layers, parameters, output shapes, bytes."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import torch
from torch import Tensor, nn

from etude.fast_dataclass import record
from etude.units import human


@record
class Layer:
    """One module: its name in the model, its class, the shape it gave, its own parameters, bytes of what it gave."""

    name: str
    kind: str
    output: str
    parameters: int
    trainable: int
    bytes: int


@record
class Summary:
    """A table of layers; prints as text, and as HTML in a notebook."""

    layers: tuple[Layer, ...]
    parameters: int
    trainable: int
    parameter_bytes: int
    activation_bytes: int

    def __str__(self) -> str:
        rows = [("layer", "class", "output", "parameters")]
        rows += [(one.name or "(model)", one.kind, one.output, f"{one.parameters:,}") for one in self.layers]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d:>{widths[3]}}".rstrip() for a, b, c, d in rows
        ]
        return "\n".join([*lines, self.footer])

    @property
    def footer(self) -> str:
        frozen = f", {self.trainable:,} trainable" if self.trainable != self.parameters else ""
        seen = f", outputs {human(self.activation_bytes)}" if self.activation_bytes else ""
        return f"{self.parameters:,} parameters{frozen}, {human(self.parameter_bytes)}{seen}"

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>{escape(one.name or '(model)')}</td><td>{escape(one.kind)}</td><td>{escape(one.output)}</td>"
            f"<td style='text-align:right'>{one.parameters:,}</td></tr>"
            for one in self.layers
        )
        head = "<tr><th>layer</th><th>class</th><th>output</th><th>parameters</th></tr>"
        return f"<table>{head}{cells}</table><p>{escape(self.footer)}</p>"


def summary(model: nn.Module, batch: Any = None) -> Summary:
    """Return the layers of ``model``; with a ``batch`` also the shapes and bytes of what each gives.

    The model is called with the batch (a tuple: its arguments, a mapping: by name). Nothing is trained, and the
    model's mode, buffers and random numbers stay as they were.

    >>> print(summary(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(8, 4)))
    layer    class       output  parameters
    (model)  Sequential  8×2              0
    0        Linear      8×3             15
    1        ReLU        8×3              0
    2        Linear      8×2              8
    23 parameters, 92 B, outputs 256 B
    """
    outputs = _outputs(model, batch) if batch is not None else {}
    layers = tuple(
        Layer(
            name,
            type(module).__name__,
            _shape(outputs.get(name)),
            sum(p.numel() for p in module.parameters(recurse=False)),
            sum(p.numel() for p in module.parameters(recurse=False) if p.requires_grad),
            sum(t.numel() * t.element_size() for t in _tensors(outputs.get(name))),
        )
        for name, module in model.named_modules()
    )
    every = list(model.parameters())
    return Summary(
        layers,
        sum(p.numel() for p in every),
        sum(p.numel() for p in every if p.requires_grad),
        sum(p.numel() * p.element_size() for p in every),
        sum(one.bytes for one in layers if one.name),
    )


def _outputs(model: nn.Module, batch: Any) -> dict[str, Any]:
    """Return what each module gave, from one pass in evaluation mode."""
    found: dict[str, Any] = {}

    def note(name: str) -> Any:
        def hook(module: nn.Module, given: Any, output: Any) -> None:
            found[name] = output

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in model.named_modules()]
    modes = {module: module.training for module in model.modules()}
    devices = [0] if torch.cuda.is_available() else []
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            model.eval()
            if isinstance(batch, Mapping):
                model(**batch)
            elif isinstance(batch, tuple | list):
                model(*batch)
            else:
                model(batch)
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes.items():
            module.training = mode
    return found


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in _tensors(item)]


def _shape(value: Any) -> str:
    shapes = ["×".join(map(str, tensor.shape)) or "scalar" for tensor in _tensors(value)]
    return ", ".join(shapes[:3]) + (" …" if len(shapes) > 3 else "")
