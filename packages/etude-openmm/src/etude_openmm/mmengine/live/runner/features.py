"""Turns on ``torch.compile`` and activation checkpointing, if a config asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from etude_openmm.shared.logging import print_log


def compile_method(model: nn.Module, target: str, options: bool | dict[str, Any] | None) -> None:
    """Compile one method of the model with ``torch.compile``. ``options`` is True or a dict of its arguments."""
    if not options and not isinstance(options, dict):
        return
    assert isinstance(options, bool | dict), f"`compile` should be a dict or bool, got {type(options)}"
    arguments = {} if isinstance(options, bool) else dict(options)
    target = arguments.pop("target", target)
    setattr(model, target, torch.compile(getattr(model, target), **arguments))
    print_log(f"{target} of the model is compiled: the first iterations take longer", logger="current")


def turn_on_activation_checkpointing(model: nn.Module, modules: str | list[str]) -> None:
    """Turn on activation checkpointing for ``modules``, given by name: backward runs their forward again."""
    for name in [modules] if isinstance(modules, str) else modules:
        module = model.get_submodule(name)
        module.forward = _checkpointed_forward(module)


def _checkpointed_forward(module: nn.Module) -> Any:
    forward = module.forward
    norms = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._NormBase)]

    @wraps(forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        contexts = lambda: (nullcontext(), _frozen_statistics(norms))  # noqa: E731
        return checkpoint(partial(forward, **kwargs), *args, use_reentrant=False, context_fn=contexts)

    return call


@contextmanager
def _frozen_statistics(norms: list[Any]) -> Iterator[None]:
    """Keep the running statistics of batch norms as they are: forward has counted this batch already."""
    before = [(norm, norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm, _, count in before:
        # A momentum of 0 adds nothing to the statistics; the count is copied, as forward increases it in place.
        norm.momentum, norm.num_batches_tracked = 0.0, None if count is None else count.clone()
    try:
        yield
    finally:
        for norm, momentum, count in before:
            norm.momentum, norm.num_batches_tracked = momentum, count
