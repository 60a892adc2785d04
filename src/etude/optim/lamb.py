"""LAMB: Adam whose step is made as long as the tensor it moves.

You et al.: *Large Batch Optimization for Deep Learning: Training BERT in 76 minutes*, 2020; with the clipping of the
whole gradient that training recipes for images added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from etude.optim.tensors import non_negative, norms, with_grads


class LAMB(Optimizer):
    """Adam's direction plus decoupled decay, scaled per tensor by ``|w| / |direction|``.

    Gradients are divided by ``max(1, |all gradients| / max_grad_norm)`` first (None: not). Groups without weight decay
    are not scaled unless ``always_adapt``; ``trust_clip`` bounds the scale by 1.
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
        self._room: dict[tuple[str, torch.dtype], Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        divisor = self._divisor()
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for params, grads in with_grads(group):
                self._update(group, params, self._divided(grads, divisor))
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        decay, lr = group["weight_decay"], group["lr"]
        way = self._fused_way if _can_fuse(group, params) else self._foreach_way
        descent = way(group, params, grads)
        if decay != 0:
            torch._foreach_add_(descent, params, alpha=-decay)
        if decay != 0 or group["always_adapt"]:
            torch._foreach_addcmul_(params, descent, _trust(group, params, descent), value=lr)
        else:
            torch._foreach_add_(params, descent, alpha=lr)

    def _divisor(self) -> Tensor | None:
        """What all gradients are divided by, or None."""
        most = self.defaults["max_grad_norm"]
        if most is None:
            return None
        parts = [norms(grads) for group in self.param_groups for _, grads in with_grads(group)]
        if not parts:
            return None
        whole = torch.linalg.vector_norm(torch.cat([part.to(parts[0]) for part in parts]))
        return torch.clamp(whole / most, min=1.0)

    def _divided(self, grads: list[Tensor], divisor: Tensor | None) -> list[Tensor]:
        """Gradients over ``divisor``; themselves where it is one, which only a CPU's memory shows without waiting."""
        if divisor is None or (divisor.device.type == "cpu" and divisor.numpy() == 1.0):
            return grads
        divided = self._scratch(grads, "gradients")
        torch._foreach_copy_(divided, grads)
        torch._foreach_div_(divided, divisor.to(grads[0]))
        return divided

    def _fused_way(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        """Adam's step of length one, as torch's own kernel takes it from zero."""
        first, second = self._moments(params)
        descent = self._scratch(params, "descent")
        torch._foreach_zero_(descent)
        beta1, beta2 = group["betas"]
        steps = [torch.full((), float(group["step"]), device=params[0].device)] * len(params)
        torch._fused_adamw_(
            descent, grads, first, second, [], steps, lr=1.0, beta1=beta1, beta2=beta2, weight_decay=0.0,
            eps=group["eps"], amsgrad=False, maximize=False, grad_scale=None, found_inf=None,
        )  # fmt: skip
        return descent

    def _foreach_way(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
        """The same in single operations, for options that the kernel does not have."""
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

    def _scratch(self, like: list[Tensor], use: str) -> list[Tensor]:
        """Room for tensors of these shapes. On a CPU it is the same memory again and again, still in the cache."""
        if like[0].device.type != "cpu":
            return [torch.empty_like(tensor, memory_format=torch.preserve_format) for tensor in like]
        sizes, key = [tensor.numel() for tensor in like], (use, like[0].dtype)
        if key not in self._room or self._room[key].numel() < sum(sizes):
            self._room[key] = torch.empty(sum(sizes), dtype=like[0].dtype)
        parts = torch.split(self._room[key][: sum(sizes)], sizes)
        return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


def _corrections(group: dict[str, Any]) -> tuple[float, float]:
    if not group["bias_correction"]:
        return 1.0, 1.0
    beta1, beta2 = group["betas"]
    return 1.0 - beta1 ** group["step"], 1.0 - beta2 ** group["step"]


def _can_fuse(group: dict[str, Any], params: list[Tensor]) -> bool:
    plain = all(parameter.is_contiguous() for parameter in params) and params[0].is_floating_point()
    usual = group["bias_correction"] and group["grad_averaging"]
    return bool(plain and usual and params[0].device.type in ("cpu", "cuda"))


def _trust(group: dict[str, Any], params: list[Tensor], direction: list[Tensor]) -> list[Tensor]:
    weight, length = norms(params), norms(direction)
    trust = torch.where((weight > 0) & (length > 0), weight / length, torch.ones_like(weight))
    return list((trust.clamp(max=1.0) if group["trust_clip"] else trust).unbind())
