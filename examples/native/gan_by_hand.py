"""A GAN without a config: two optimizers and an update of its own.  python examples/native/gan_by_hand.py"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import etude
from etude.data import Digits

judge = nn.functional.binary_cross_entropy_with_logits


class Gan(nn.Module):
    def __init__(self, noise: int = 16, hidden: int = 128) -> None:
        super().__init__()
        self.noise = noise
        self.generator = nn.Sequential(nn.Linear(noise, hidden), nn.ReLU(), nn.Linear(hidden, 64), nn.Sigmoid())
        self.discriminator = nn.Sequential(nn.Linear(64, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))

    def forward(self, count: int) -> Tensor:
        return self.generator(torch.randn(count, self.noise))


def update(run: etude.Run, batch: Any, step: etude.Step) -> dict[str, Tensor]:
    """First the discriminator learns to tell real from made, then the generator to deceive it."""
    real, _ = batch
    tell, made = run.model.discriminator, run.model(len(real))
    yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    step.only("discriminator").learn(run, judge(tell(real), yes) + judge(tell(made.detach()), no))
    step.only("generator").learn(run, judge(tell(made), yes))
    return {"made": made}


def main(epochs: int = 20) -> etude.Run:
    torch.manual_seed(0)
    model = Gan()
    optimizers = {
        name: torch.optim.Adam(getattr(model, name).parameters(), lr=1e-3, betas=(0.5, 0.99))
        for name in ("generator", "discriminator")
    }
    trainer = etude.Trainer(model, optimizer=optimizers, update=update, clip_norm=5.0, seed=0)
    return trainer.fit(Digits("train"), epochs=epochs, batch_size=64)


if __name__ == "__main__":
    main()
