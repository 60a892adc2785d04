"""LAMB: Adam with a step that is scaled to the norm of each tensor.

You et al.: *Large Batch Optimization for Deep Learning: Training BERT in 76 minutes*, 2020; with the clipping of the
whole gradient that training recipes for images added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from etude.optim.foreach import kernels_fit, non_negative, norms, with_grads


class LAMB(Optimizer):
    """Adam's direction plus decoupled decay, scaled per tensor by ``|w| / |direction|``.

    Gradients are divided in place by ``max(1, |all gradients| / max_grad_norm)`` first (None: not). Groups without
    weight decay are not scaled unless ``always_adapt``; ``trust_clip`` bounds the scale by 1.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        grad_averaging: bool = True,
        max_grad_norm: float | None = 1.0,
        trust_clip: bool = False,
        always_adapt: bool = False,
    ) -> None:
        non_negative(lr=lr, eps=eps, weight_decay=weight_decay)
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas are {tuple(betas)}; each must be at least 0 and below 1")
        defaults = {
            "lr": lr, "bias_correction": bias_correction, "betas": tuple(betas), "eps": eps,
            "weight_decay": weight_decay, "grad_averaging": grad_averaging, "max_grad_norm": max_grad_norm,
            "trust_clip": trust_clip, "always_adapt": always_adapt,
        }  # fmt: skip
        super().__init__(params, defaults)
        self._forget_scratch()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._forget_scratch()  # a copy is made without it

    def _forget_scratch(self) -> None:
        self._rooms: dict[torch.dtype, Tensor] = {}
        self._views: dict[Any, list[Tensor]] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [(group, *pair) for group in self.param_groups for pair in with_grads(group)]
        divisor = self._divisor([grads for _, _, grads in work])
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        for group, params, grads in work:
            usual = group["bias_correction"] and group["grad_averaging"]
            way = self._fused_way if usual and kernels_fit(params, grads) else self._foreach_way
            way(group, params, grads, divisor)
        return loss

    def _fused_way(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], divisor: Tensor | None
    ) -> None:
        """Step with torch's kernel for Adam. If the trust ratio scales the step, the kernel works on a copy: with a
        rate of one and a decay of ``1 + decay`` it leaves the direction there."""
        decay, lr = group["weight_decay"], float(group["lr"])
        if divisor is not None and float(divisor) == 1.0:
            divisor = None  # the kernel would write every gradient
        if divisor is not None and divisor.dtype != torch.float32:  # the kernel takes no other
            torch._foreach_div_(grads, divisor.to(grads[0]))
            divisor = None
        first, second = self._moments(params)
        now = torch.full((), float(group["step"]))
        if decay == 0 and not group["always_adapt"]:
            _adam_kernel(group, now, divisor, params, grads, first, second, lr, 0.0)
            return
        descents = self._scratch(params)
        torch._foreach_copy_(descents, params)
        # AdamW with lr 1 computes w · (1 - (1 + decay)) - m̂ / (√v̂ + eps) = -(decay · w + m̂ / (√v̂ + eps)): LAMB's step.
        _adam_kernel(group, now, divisor, descents, grads, first, second, 1.0, 1.0 + decay)
        lengths = norms([*params, *descents]).tolist()
        for parameter, descent, weight, length in zip(params, descents, lengths, lengths[len(params) :], strict=False):
            trust = weight / length if weight > 0 and length > 0 else 1.0
            parameter.add_(descent, alpha=lr * (min(trust, 1.0) if group["trust_clip"] else trust))

    def _foreach_way(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], divisor: Tensor | None
    ) -> None:
        """Step with single operations that read nothing: for accelerators, and for options that the kernel lacks."""
        decay, lr = group["weight_decay"], group["lr"]
        if divisor is not None:
            torch._foreach_div_(grads, divisor.to(grads[0]))
        descent = self._adam(group, params, grads)
        if decay != 0:
            torch._foreach_add_(descent, params, alpha=-decay)
        if decay != 0 or group["always_adapt"]:
            torch._foreach_addcmul_(params, descent, _trust(group, params, descent), value=lr)
        else:
            torch._foreach_add_(params, descent, alpha=lr)

    def _divisor(self, lists: list[list[Tensor]]) -> Tensor | None:
        """Return what all gradients are divided by, or None."""
        most = self.defaults["max_grad_norm"]
        if most is None or not lists:
            return None
        parts = [norms(grads) for grads in lists]
        whole = torch.linalg.vector_norm(torch.cat([part.to(parts[0]) for part in parts]))
        return torch.clamp(whole / most, min=1.0)

    def _adam(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        """Return the descent direction of Adam with a rate of one."""
        beta1, beta2 = group["betas"]
        first, second = self._moments(params)
        if group["grad_averaging"]:
            torch._foreach_lerp_(first, grads, 1.0 - beta1)
        else:
            torch._foreach_mul_(first, beta1)
            torch._foreach_add_(first, grads)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, value=1.0 - beta2)
        correct1, correct2 = _corrections(group)
        # In place, without a copy per factor: -m / (correct1 · (√v / √correct2 + eps)).
        descent = list(torch._foreach_sqrt(second))
        torch._foreach_mul_(descent, -correct1 / correct2**0.5)
        torch._foreach_sub_(descent, correct1 * group["eps"])
        torch._foreach_reciprocal_(descent)
        torch._foreach_mul_(descent, first)
        return descent

    def _moments(self, params: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        for parameter in params:
            state = self.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        states = [self.state[parameter] for parameter in params]
        return [state["exp_avg"] for state in states], [state["exp_avg_sq"] for state in states]

    def _scratch(self, params: list[Tensor]) -> list[Tensor]:
        """Return scratch memory for tensors of these shapes. Every list uses the same, so that it stays in the
        cache."""
        key = (params[0].dtype, *[parameter.shape for parameter in params])
        if key not in self._views:
            ends = list(accumulate(parameter.numel() for parameter in params))
            room = self._rooms.get(params[0].dtype)
            if room is None or room.numel() < ends[-1]:
                room = self._rooms[params[0].dtype] = torch.empty(ends[-1], dtype=params[0].dtype)
                self._views = {known: views for known, views in self._views.items() if known[0] != room.dtype}
            self._views[key] = [
                room[end - parameter.numel() : end].view(parameter.shape)
                for parameter, end in zip(params, ends, strict=True)
            ]
        return self._views[key]


def _adam_kernel(
    group: dict[str, Any], now: Tensor, divisor: Tensor | None, params: list[Tensor], grads: list[Tensor],
    first: list[Tensor], second: list[Tensor], lr: float, decay: float,
) -> None:  # fmt: skip
    beta1, beta2 = group["betas"]
    torch._fused_adamw_(
        params, grads, first, second, [], [now] * len(params), lr=lr,
        beta1=beta1, beta2=beta2, weight_decay=decay, eps=group["eps"], amsgrad=False, maximize=False,
        grad_scale=divisor, found_inf=None,
    )  # fmt: skip


def _corrections(group: dict[str, Any]) -> tuple[float, float]:
    if not group["bias_correction"]:
        return 1.0, 1.0
    beta1, beta2 = group["betas"]
    return 1.0 - beta1 ** group["step"], 1.0 - beta2 ** group["step"]


def _trust(group: dict[str, Any], params: list[Tensor], direction: list[Tensor]) -> list[Tensor]:
    weight, length = norms(params), norms(direction)
    trust = torch.where((weight > 0) & (length > 0), weight / length, torch.ones_like(weight))
    return list((trust.clamp(max=1.0) if group["trust_clip"] else trust).unbind())
