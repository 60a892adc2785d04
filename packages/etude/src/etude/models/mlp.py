"""Linear layers with something between them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from etude.errors import ConfigError
from etude.models.activation import activation_of


class MLP(nn.Module):
    """``sizes`` are the widths from input to output: ``[64, 128, 10]`` has one hidden layer. Inputs are flattened."""

    def __init__(self, sizes: Sequence[int], dropout: float = 0.0, activation: str = "ReLU") -> None:
        super().__init__()
        if len(sizes) < 2:
            raise ConfigError(f"MLP: sizes is {list(sizes)}; it needs at least an input and an output")
        between = activation_of(activation)
        layers: list[nn.Module] = []
        for width, following in pairwise(sizes[:-1]):
            layers += [nn.Linear(width, following), between()]
            layers += [nn.Dropout(dropout)] if dropout else []
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.layers(inputs.flatten(1))
        return output
