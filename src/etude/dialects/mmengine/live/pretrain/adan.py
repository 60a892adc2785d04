"""Adan: Nesterov momentum that looks at how the gradient changes.

Xie, Zhou, Li, Lin, Yan: *Adan: Adaptive Nesterov Momentum Algorithm for Faster Optimizing Deep Models*, 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from etude.optim.tensors import non_negative


class Adan(Optimizer):
    """Means of the gradient, of its change, and of the square of both together; weight decay by a proximal step.

    ``max_grad_norm`` above 0 clips the norm of all gradients; ``no_prox`` decays as AdamW does. ``foreach`` is taken
    and not needed.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float, float] = (0.98, 0.92, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float = 0.0,
        no_prox: bool = False,
        foreach: bool = True,
    ) -> None:
        non_negative(lr=lr, eps=eps, weight_decay=weight_decay, max_grad_norm=max_grad_norm)
        if len(betas) != 3 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas should be three numbers from 0 to below 1, got {betas}")
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "max_grad_norm": max_grad_norm, "no_prox": no_prox, "foreach": foreach,
        }  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scale = self._clip_scale()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for param in group["params"]:
                if param.grad is not None:
                    self._update(group, param, param.grad if scale is None else param.grad * scale)
        return loss

    def _clip_scale(self) -> Tensor | None:
        limit = self.defaults["max_grad_norm"]
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not limit or not grads:
            return None
        return torch.clamp(limit / (torch.nn.utils.get_total_norm(grads) + self.param_groups[0]["eps"]), max=1.0)

    def _update(self, group: dict[str, Any], param: Tensor, grad: Tensor) -> None:
        beta1, beta2, beta3 = group["betas"]
        state = self.state[param]
        if not state:
            state.update({name: torch.zeros_like(param) for name in ("exp_avg", "exp_avg_diff", "exp_avg_sq")})
            state["neg_pre_grad"] = -grad
        change = state["neg_pre_grad"].add_(grad)
        mean, trend, square = state["exp_avg"], state["exp_avg_diff"], state["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        trend.lerp_(change, 1 - beta2)
        ahead = grad + beta2 * change
        square.mul_(beta3).addcmul_(ahead, ahead, value=1 - beta3)
        one, two, three = (1 - beta ** group["step"] for beta in group["betas"])
        size = square.sqrt().div_(math.sqrt(three)).add_(group["eps"])
        self._move(group, param, mean / one + beta2 * trend / two, size)
        state["neg_pre_grad"] = -grad

    def _move(self, group: dict[str, Any], param: Tensor, direction: Tensor, size: Tensor) -> None:
        lr, decay = group["lr"], group["lr"] * group["weight_decay"]
        if group["no_prox"]:
            param.mul_(1 - decay)
        param.addcdiv_(direction, size, value=-lr)
        if not group["no_prox"]:
            param.div_(1 + decay)
