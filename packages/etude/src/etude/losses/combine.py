"""Several losses as one."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from etude.errors import ConfigError


class SumLoss(nn.Module):
    """The weighted sum of ``losses``, each of which gets the same output and target."""

    def __init__(self, losses: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        if not losses:
            raise ConfigError("SumLoss needs at least one loss")
        self.losses = nn.ModuleList(losses)
        self.weights = [1.0] * len(losses) if weights is None else [float(weight) for weight in weights]
        if len(self.weights) != len(losses):
            raise ConfigError(f"SumLoss: {len(self.weights)} weights for {len(losses)} losses")

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        parts = [weight * loss(output, target) for weight, loss in zip(self.weights, self.losses, strict=True)]
        total: Tensor = sum(parts[1:], parts[0])
        return total
