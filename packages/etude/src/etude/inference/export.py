"""Writes a run's model for use without Étude: as a program of torch, as ONNX, or as weights alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from etude.building.data import make_dataset
from etude.core.forward import Forward
from etude.core.predict import inputs_of
from etude.data.loader import Loader
from etude.inference.load import guest_of, load, plan_of
from etude.inference.predict import no_loss, split_of
from etude.plan import Plan


def export(
    run: str | Path,
    path: str | Path,
    *,
    best: bool | str = False,
    ema: bool | None = None,
    shape: Sequence[int] | None = None,
) -> str:
    """Write a run's model as ``.pt2`` (torch.export), ``.onnx`` or ``.safetensors`` (weights), and check the file.

    The program takes any batch size. It is run on a batch of another size than it was traced with, and its outputs are
    compared with the model's; returns a line that says so. ``shape`` of one input replaces a batch of the run's data.
    """
    from etude.inference.write import write

    model = load(run, best=best, ema=ema)
    target, plan = Path(path), plan_of(run)
    if target.suffix == ".safetensors":
        return write(model, target, None)
    spoken = guest_of(plan)
    model, inputs = spoken.program(plan, model, shape) if spoken is not None else (model, _example(plan, shape))
    return write(model, target, inputs)


def _example(plan: Plan, shape: Sequence[int] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the inputs of a batch, as arguments and as keywords."""
    if shape is not None:
        return (torch.randn(4, *shape),), {}
    loader = plan.data[split_of(plan, "")]
    dataset = make_dataset(plan, loader.dataset)
    batch = next(iter(Loader(dataset, batch_size=max(4, min(loader.batch_size, 8)))))
    forward = Forward(torch.nn.Identity(), {"loss": no_loss} if plan.losses else {})
    inputs = inputs_of(forward, batch)
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)), {}
