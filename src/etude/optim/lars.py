"""LARS: the step of each tensor is made as long as a share of the tensor itself.

You, Gitman, Ginsburg: *Large Batch Training of Convolutional Networks*, 2017. The learning rate is part of what the
momentum remembers, as in the form that self-supervised training made common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from etude.optim.tensors import non_negative, norms, with_grads


class LARS(Optimizer):
    """SGD with momentum. Per tensor, ``lr`` is multiplied by ``eta · |w| / (|g| + weight_decay · |w| + eps)``.

    Groups with ``lars_exclude`` (biases, norm layers) take ``lr`` as it is; so do tensors with a norm of zero.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        dampening: float = 0.0,
        eta: float = 0.001,
        nesterov: bool = False,
        eps: float = 1e-8,
        lars_exclude: bool = False,
    ) -> None:
        non_negative(lr=lr, momentum=momentum, weight_decay=weight_decay, eta=eta, eps=eps)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov needs a momentum and no dampening")
        defaults = {
            "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "dampening": dampening,
            "eta": eta, "nesterov": nesterov, "eps": eps, "lars_exclude": lars_exclude,
        }  # fmt: skip
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for params, grads in with_grads(group):
                self._update(group, params, grads)
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """Without temporary copies: gradient and decay are added one after the other to where they go."""
        momentum, decay, scales = group["momentum"], group["weight_decay"], _scales(group, params, grads)
        if momentum != 0:
            buffers, shares = self._buffers(params, scales, 1.0 - group["dampening"])
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_addcmul_(buffers, grads, shares)
            if decay != 0:
                torch._foreach_addcmul_(buffers, params, shares, value=decay)
        if momentum == 0 or group["nesterov"]:
            if decay != 0:
                torch._foreach_mul_(params, list((1.0 - decay * scales).unbind()))
            torch._foreach_addcmul_(params, grads, list(scales.unbind()), value=-1.0)
        if momentum != 0:
            torch._foreach_add_(params, buffers, alpha=-momentum if group["nesterov"] else -1.0)

    def _buffers(self, params: list[Tensor], scales: Tensor, share: float) -> tuple[list[Tensor], list[Tensor]]:
        """What momentum remembers of each tensor, and how much of a step enters: the first one enters whole."""
        shares = scales * share
        for number, parameter in enumerate(params):
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                shares[number] = scales[number]
        return [self.state[parameter]["momentum_buffer"] for parameter in params], list(shares.unbind())


def _scales(group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> Tensor:
    """Learning rate of each tensor, as a vector, so that no norm has to be read."""
    lr = group["lr"]
    if group.get("lars_exclude", False):
        return torch.full((len(params),), float(lr), dtype=params[0].dtype, device=params[0].device)
    weight, grad = norms(params), norms(grads)
    local = group["eta"] * weight / (grad + group["weight_decay"] * weight + group["eps"])
    usable = (weight > 0) & (grad > 0)
    return torch.mul(torch.where(usable, local, torch.ones_like(local)), lr)
