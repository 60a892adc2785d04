"""What several tests of this room share."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

SHAPES = [(3, 4), (4,), (2, 3, 2), ()]


def tensors(seed: int, shapes=SHAPES) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def trained(make, shapes=SHAPES, dtype=torch.float64, *, steps: int = 4) -> list[torch.Tensor]:
    params = [torch.nn.Parameter(tensor.to(dtype)) for tensor in tensors(0, shapes)]
    params[1].data.zero_()
    optimizer = make(params)
    for step in range(steps):
        for number, (parameter, grad) in enumerate(zip(params, tensors(step + 1, shapes), strict=True)):
            late = number == 2 and step == 0
            parameter.grad = None if late else (grad * (0.0 if step == 2 else 1.0)).to(dtype)
        optimizer.step()
        if step == 1:
            again = make(params)
            again.load_state_dict(optimizer.state_dict())
            optimizer = again
    return [parameter.detach() for parameter in params]


def lamb_by_hand(
    lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, grad_averaging=True,
    max_grad_norm=1.0, trust_clip=False, always_adapt=False, shapes=SHAPES,
):  # fmt: skip
    params, moments = tensors(0, shapes), {}
    params[1].zero_()
    for step in range(4):
        grads = {n: g * (0.0 if step == 2 else 1.0) for n, g in enumerate(tensors(step + 1, shapes)) if n != 2 or step}
        if max_grad_norm is not None:
            whole = torch.stack([g.norm() for g in grads.values()]).norm()
            grads = {n: g / max(1.0, float(whole) / max_grad_norm) for n, g in grads.items()}
        c1, c2 = (1 - betas[0] ** (step + 1), 1 - betas[1] ** (step + 1)) if bias_correction else (1.0, 1.0)
        for n, g in grads.items():
            w = params[n]
            m, v = moments.get(n, (torch.zeros_like(w), torch.zeros_like(w)))
            m = betas[0] * m + (1 - betas[0] if grad_averaging else 1.0) * g
            v = betas[1] * v + (1 - betas[1]) * g * g
            moments[n] = m, v
            u = (m / c1) / (v.sqrt() / c2**0.5 + eps) + weight_decay * w
            if weight_decay != 0 or always_adapt:
                ratio = w.norm() / u.norm() if w.norm() > 0 and u.norm() > 0 else torch.ones(())
                u = u * (ratio.clamp(max=1.0) if trust_clip else ratio)
            w -= lr * u
    return params


sizes = st.lists(st.lists(st.integers(1, 40), max_size=2).map(tuple), min_size=2, max_size=5)
