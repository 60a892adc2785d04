"""Applies ``torch.compile``, gradient checkpointing and channels-last, which change how a model computes and not
what."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy as copy
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from etude import torch_private
from etude.errors import ConfigError
from etude.errors.spelling import suggest

_log = logging.getLogger("etude.models")
#: Backends of ``torch.compile`` that need a C++ compiler for a CPU.
_WITH_COMPILER = ("inductor",)


def recompute(model: nn.Module, patterns: Sequence[str], *, at: str = "") -> list[str]:
    """Let modules forget their activations and compute them again in the backward pass; return their names.

    A pattern is the name of a class (``TransformerBlock``) or of modules (``blocks.*``). Results stay the same.
    """
    found: dict[str, nn.Module] = {}
    for pattern in patterns:
        chosen = {
            name: module
            for name, module in model.named_modules()
            if name and (type(module).__name__ == pattern or fnmatchcase(name, pattern))
        }
        if not chosen:
            known = {*(name for name, _ in model.named_modules() if name), *(type(m).__name__ for m in model.modules())}
            message = f"train.gradient_checkpointing: {pattern!r} matches no module of the model"
            raise ConfigError(message, at=at, hint=suggest(pattern, known))
        found |= chosen
    # A module inside one that is computed again anyway would only be computed a third time.
    outer = [name for name in found if not any(name.startswith(f"{other}.") for other in found)]
    for name in outer:
        found[name].forward = _recomputed(found[name])
    return outer


def _recomputed(module: nn.Module) -> Callable[..., Any]:
    forward = module.forward
    norms = [one for one in module.modules() if isinstance(one, torch_private.batch_norm()) and one.track_running_stats]

    @contextmanager
    def second() -> Iterator[None]:
        """Batch norms count a batch once: with a momentum of 0 their statistics stay when it comes again."""
        counting = [(norm, norm.momentum, copy(norm.num_batches_tracked)) for norm in norms if norm.training]
        for norm, _, _ in counting:
            norm.momentum = 0.0
        try:
            yield
        finally:
            for norm, momentum, count in counting:
                norm.momentum = momentum
                if norm.num_batches_tracked is not None and count is not None:
                    norm.num_batches_tracked.copy_(count)

    def call(*args: Any, **words: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **words)
        if not norms:  # torch.compile takes no context
            return checkpoint(forward, *args, use_reentrant=False, **words)
        return checkpoint(forward, *args, use_reentrant=False, context_fn=lambda: (nullcontext(), second()), **words)

    return call


def channels_last(model: nn.Module) -> None:
    """Keep weights and images of ``model`` in channels-last memory, which is faster for convolutions on many GPUs."""

    def convert(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            value.contiguous(memory_format=torch.channels_last)
            if isinstance(value, Tensor) and value.ndim == 4
            else value
            for value in args
        )

    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.register_forward_pre_hook(convert)


def can_compile(words: Mapping[str, Any], device: torch.device) -> bool:
    """Return whether ``torch.compile`` can work here, and say so if not; torch itself raises at the first step."""
    if device.type != "cpu" or words.get("backend", "inductor") not in _WITH_COMPILER:
        return True
    if not torch_private.has_compiler():
        _log.warning("train.compile has no effect: there is no C++ compiler (install g++, or name one by CXX)")
        return False
    return True


def compiled_loss(loss: Callable[..., Tensor], words: Mapping[str, Any]) -> Callable[..., Tensor]:
    """Return ``loss`` compiled. torch compiles none of its own modules alone, only what a function calls."""

    def call(output: Any, target: Any) -> Tensor:
        return loss(output, target)

    made: Callable[..., Tensor] = torch.compile(call, **words)
    return made
