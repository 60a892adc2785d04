"""Activations by the name that torch gives them."""

from __future__ import annotations

from torch import nn
from torch.nn.modules import activation as torch_activation

from etude.errors import ConfigError
from etude.errors.spelling import suggest


def activation_of(name: str) -> type[nn.Module]:
    """``ReLU``, ``GELU``, ``Tanh`` … as a class."""
    known = [entry for entry in torch_activation.__all__ if entry != "MultiheadAttention"]
    if name not in known:
        raise ConfigError(f"no activation is called {name!r}", hint=suggest(name, known))
    found: type[nn.Module] = getattr(nn, name)
    return found
