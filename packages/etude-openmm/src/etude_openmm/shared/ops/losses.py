"""Focal losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from etude_openmm.shared.ops.vision import gradients


def sigmoid_focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.25,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the focal loss of one sigmoid per class. A target equal to the number of classes is background."""
    classes = input.shape[1]
    wanted = functional.one_hot(target.long(), classes + 1)[:, :classes].to(input)
    probability = input.sigmoid()
    wrong = (1 - probability) * wanted + probability * (1 - wanted)
    balance = alpha * wanted + (1 - alpha) * (1 - wanted)
    loss = functional.binary_cross_entropy_with_logits(input, wanted, reduction="none") * balance * wrong.pow(gamma)
    if weight is not None and weight.numel():
        loss = loss * weight[target.long().clamp(max=classes - 1)][:, None]
    return _reduced(loss, reduction, len(input))


def softmax_focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.25,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the focal loss of a softmax over the classes. Negative targets are ignored."""
    valid = target >= 0
    at = target.long().clamp(min=0)
    log = input.log_softmax(dim=1).gather(1, at[:, None]).squeeze(1)
    loss = -alpha * (1 - log.exp()).pow(gamma) * log * valid
    if weight is not None and weight.numel():
        loss = loss * weight[at]
    return _reduced(loss, reduction, len(input))


def _reduced(loss: Tensor, reduction: str, count: int) -> Tensor:
    """Reduce the losses. The mean is over the rows, as in mmcv, not over their entries."""
    if reduction == "mean":
        return loss.sum() / count
    return loss.sum() if reduction == "sum" else loss


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``output`` with a loss for each row and class."""
    output.copy_(sigmoid_focal_loss(input, target, gamma, alpha, weight, "none"))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``grad_input`` with the derivative of each loss."""

    def loss(logits: Tensor) -> Tensor:
        return sigmoid_focal_loss(logits, target, gamma, alpha, weight, "none")

    grad_input.copy_(gradients(loss, [input], torch.ones_like(input))[0])


def softmax_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``output`` with a loss for each row. ``input`` holds probabilities."""
    logits = input.clamp(min=torch.finfo(input.dtype).tiny).log()
    output.copy_(softmax_focal_loss(logits, target, gamma, alpha, weight, "none").reshape(output.shape))


def softmax_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, buff: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Fill ``grad_input`` with the derivatives by the logits that ``input``, the probabilities, came from."""

    def loss(logits: Tensor) -> Tensor:
        return softmax_focal_loss(logits, target, gamma, alpha, weight, "none")

    smallest = torch.finfo(input.dtype).tiny
    grad_input.copy_(gradients(loss, [input.clamp(min=smallest).log()], input.new_ones(len(input)))[0])
