"""What several tests of this room share."""

from __future__ import annotations

import torch


def losses_after(model, loader, steps: int = 30, lr: float = 5e-3) -> tuple[float, float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    seen = []
    while len(seen) < steps:
        for inputs, targets in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(float(loss.detach()))
            if len(seen) == steps:
                break
    return seen[0], seen[-1]
