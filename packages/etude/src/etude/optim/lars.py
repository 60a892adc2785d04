"""LARS: SGD with a step that is scaled to the norm of each tensor.

You, Gitman, Ginsburg: *Large Batch Training of Convolutional Networks*, 2017. The learning rate is part of what the
momentum remembers, as in the form that self-supervised training made common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from etude.optim.foreach import kernels_fit, non_negative, norms, with_grads


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
                fused = kernels_fit(params, grads) and not group["nesterov"]
                way = self._fused_way if fused else self._foreach_way
                way(group, params, grads)
        return loss

    def _fused_way(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """Step tensor by tensor with torch's kernel for SGD, which passes over memory once. The norms of all tensors
        are computed right before it in one call, so that it finds parameters and gradients in the cache.

        The rate of a tensor enters where the kernel has ``1 - dampening``, so that the momentum remembers it.
        """
        lr, momentum, decay = float(group["lr"]), group["momentum"], group["weight_decay"]
        adapted, eta, eps = not group.get("lars_exclude", False), group["eta"], group["eps"]
        buffers, dampening = [], 0.0  # type: list[Tensor], float
        lengths = norms([*params, *grads]).tolist() if adapted else [0.0] * (2 * len(params))
        for parameter, grad, weight, length in zip(params, grads, lengths, lengths[len(params) :], strict=False):
            scale = lr
            if weight > 0 and length > 0:
                scale = lr * (eta * weight / (length + decay * weight + eps))
            if momentum != 0:
                state = self.state[parameter]
                # As in torch's SGD, the first gradient enters the buffer whole, without dampening.
                share = 1.0 - group["dampening"] if "momentum_buffer" in state else 1.0
                buffers, dampening, scale = [_buffer(state, parameter)], 1.0 - scale * share, 1.0
            torch._fused_sgd_(
                [parameter], [grad], buffers, weight_decay=decay, momentum=momentum, lr=scale, dampening=dampening,
                nesterov=False, maximize=False, is_first_step=False, grad_scale=None, found_inf=None,
            )  # fmt: skip

    def _foreach_way(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """Step without temporary copies: gradient and decay are added in place, one after the other."""
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
        """Return what momentum remembers of each tensor, and how much of a step enters: the first one enters whole."""
        shares = scales * share
        for number, parameter in enumerate(params):
            if "momentum_buffer" not in self.state[parameter]:
                shares[number] = scales[number]
        return [_buffer(self.state[parameter], parameter) for parameter in params], list(shares.unbind())


def _buffer(state: dict[str, Any], parameter: Tensor) -> Tensor:
    if "momentum_buffer" not in state:
        state["momentum_buffer"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    buffer: Tensor = state["momentum_buffer"]
    return buffer


def _scales(group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> Tensor:
    """Return the learning rate of each tensor, as a vector on the device, so that no norm has to be read."""
    lr = group["lr"]
    if group.get("lars_exclude", False):
        return torch.full((len(params),), float(lr), dtype=params[0].dtype, device=params[0].device)
    weight, grad = norms(params), norms(grads)
    local = group["eta"] * weight / (grad + group["weight_decay"] * weight + group["eps"])
    usable = (weight > 0) & (grad > 0)
    return torch.mul(torch.where(usable, local, torch.ones_like(local)), lr)
