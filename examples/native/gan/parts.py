"""A small GAN on the digits: one model with two halves, two optimizers, and an update of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import etude


@etude.MODELS.register
class Gan(nn.Module):
    def __init__(self, noise: int = 16, hidden: int = 128) -> None:
        super().__init__()
        self.noise = noise
        self.generator = nn.Sequential(nn.Linear(noise, hidden), nn.ReLU(), nn.Linear(hidden, 64), nn.Sigmoid())
        self.discriminator = nn.Sequential(nn.Linear(64, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))

    def forward(self, count: int) -> Tensor:
        return self.generator(torch.randn(count, self.noise))


@etude.UPDATES.register
class GanUpdate:
    """First the discriminator learns to tell real from made, then the generator to deceive it."""

    def __init__(self, forward: etude.Forward, optimizers: dict[str, torch.optim.Optimizer]) -> None:
        self.model, self.optimizers = forward.model, optimizers
        self.judge = nn.BCEWithLogitsLoss()

    def __call__(self, run: etude.Run, batch: Any) -> dict[str, Tensor]:
        real, _ = batch
        made = self.model(len(real))
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        judged = self.model.discriminator
        loss_d = self.judge(judged(real), yes) + self.judge(judged(made.detach()), no)
        self._learn("discriminator", loss_d)
        loss_g = self.judge(judged(made), yes)
        self._learn("generator", loss_g)
        run.events.put("loss/discriminator", loss_d.detach())
        run.events.put("loss/generator", loss_g.detach())
        return {"loss_d": loss_d, "loss_g": loss_g, "made": made}

    def _learn(self, name: str, loss: Tensor) -> None:
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        loss.backward()
        self.optimizers[name].step()
