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
                scales = _scales(group, params, grads)
                decay = group["weight_decay"]
                update = list(torch._foreach_add(grads, params, alpha=decay)) if decay != 0 else grads
                if group["momentum"] == 0:
                    torch._foreach_addcmul_(params, update, scales, value=-1.0)
                else:
                    self._with_momentum(group, params, update, scales)
        return loss

    def _with_momentum(
        self, group: dict[str, Any], params: list[Tensor], update: list[Tensor], scales: list[Tensor]
    ) -> None:
        """The first step of a tensor enters its buffer whole, later ones by ``1 - dampening``."""
        momentum = group["momentum"]
        fresh = [number for number, parameter in enumerate(params) if "momentum_buffer" not in self.state[parameter]]
        for number in fresh:
            self.state[params[number]]["momentum_buffer"] = update[number] * scales[number]
        if fresh:
            self._move([params[n] for n in fresh], [update[n] for n in fresh], [scales[n] for n in fresh], group)
        if len(fresh) == len(params):
            return
        if fresh:
            known = sorted(set(range(len(params))) - set(fresh))
            params, update, scales = ([values[n] for n in known] for values in (params, update, scales))
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in params]
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_addcmul_(buffers, update, scales, value=1.0 - group["dampening"])
        self._move(params, update, scales, group)

    def _move(self, params: list[Tensor], update: list[Tensor], scales: list[Tensor], group: dict[str, Any]) -> None:
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in params]
        if group["nesterov"]:
            torch._foreach_addcmul_(params, update, scales, value=-1.0)
            torch._foreach_add_(params, buffers, alpha=-group["momentum"])
        else:
            torch._foreach_sub_(params, buffers)


def _scales(group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> list[Tensor]:
    """Learning rate of each tensor, as tensors, so that no norm has to be read."""
    lr = group["lr"]
    if group.get("lars_exclude", False):
        return [params[0].new_full((), float(lr))] * len(params)
    weight, grad = norms(params), norms(grads)
    local = group["eta"] * weight / (grad + group["weight_decay"] * weight + group["eps"])
    usable = (weight > 0) & (grad > 0)
    return list((torch.where(usable, local, torch.ones_like(local)) * lr).unbind())
