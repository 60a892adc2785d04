"""Upsampling and filters: carafe, upfirdn2d, and activations that are fused with a bias."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from etude_openmm.shared.ops.vision import gradients


def carafe(features: Tensor, masks: Tensor, *, kernel_size: int, group_size: int, scale_factor: int) -> Tensor:
    """Return ``features`` enlarged: each new cell is the sum of a neighbourhood, weighted by its ``masks``."""
    batch, channels, height, width = features.shape
    seen = functional.unfold(features, kernel_size, padding=kernel_size // 2)
    seen = seen.reshape(batch, group_size, channels // group_size, kernel_size**2, height, width)
    weights = masks.reshape(batch, group_size, kernel_size**2, height, scale_factor, width, scale_factor)
    found = torch.einsum("bgckhw,bgkhiwj->bgchiwj", seen, weights)
    return found.reshape(batch, channels, height * scale_factor, width * scale_factor)


def carafe_naive_forward(
    features: Tensor, masks: Tensor, output: Tensor, *, kernel_size: int, group_size: int, scale_factor: int
) -> None:
    """Fill ``output``."""
    output.copy_(carafe(features, masks, kernel_size=kernel_size, group_size=group_size, scale_factor=scale_factor))


def carafe_naive_backward(
    grad_output: Tensor, features: Tensor, masks: Tensor, grad_input: Tensor, grad_masks: Tensor, *,
    kernel_size: int, group_size: int, scale_factor: int,
) -> None:  # fmt: skip
    """Fill the gradients of features and masks."""
    enlarge = partial(carafe, kernel_size=kernel_size, group_size=group_size, scale_factor=scale_factor)
    for target, found in zip((grad_input, grad_masks), gradients(enlarge, [features, masks], grad_output), strict=True):
        target.copy_(found)


def carafe_forward(
    features: Tensor, masks: Tensor, rfeatures: Tensor, routput: Tensor, rmasks: Tensor, output: Tensor, *,
    kernel_size: int, group_size: int, scale_factor: int,
) -> None:  # fmt: skip
    """Fill ``output``, and keep the features for :func:`carafe_backward`."""
    rfeatures.copy_(features)
    carafe_naive_forward(
        features, masks, output, kernel_size=kernel_size, group_size=group_size, scale_factor=scale_factor
    )


def carafe_backward(
    grad_output: Tensor, rfeatures: Tensor, masks: Tensor, rgrad_output: Tensor, rgrad_input_hs: Tensor,
    rgrad_input: Tensor, rgrad_masks: Tensor, grad_input: Tensor, grad_masks: Tensor, *,
    kernel_size: int, group_size: int, scale_factor: int,
) -> None:  # fmt: skip
    """Fill the gradients of features and masks."""
    carafe_naive_backward(
        grad_output, rfeatures.reshape(grad_input.shape), masks, grad_input, grad_masks,
        kernel_size=kernel_size, group_size=group_size, scale_factor=scale_factor,
    )  # fmt: skip


def upfirdn2d(
    input: Tensor, kernel: Tensor, up_x: int, up_y: int, down_x: int, down_y: int, pad_x0: int, pad_x1: int,
    pad_y0: int, pad_y1: int, flip: bool = True, gain: float = 1.0,
) -> Tensor:  # fmt: skip
    """Return ``input`` with zeros put between its cells, padded, filtered and thinned out.

    The filter is turned round first, unless ``flip``.
    """
    batch, channels, height, width = input.shape
    spread = input.new_zeros(batch, channels, height, up_y, width, up_x)
    spread[:, :, :, 0, :, 0] = input
    spread = spread.reshape(batch, channels, height * up_y, width * up_x)
    # A negative padding cuts off, as functional.pad does.
    padded = functional.pad(spread, (pad_x0, pad_x1, pad_y0, pad_y1))
    taps = (kernel if flip else kernel.flip((0, 1))).to(input.dtype) * gain
    filtered = functional.conv2d(padded, taps.expand(channels, 1, *taps.shape), groups=channels)
    return filtered[:, :, ::down_y, ::down_x]


def fused_bias_leakyrelu(
    input: Tensor, bias: Tensor, refer: Tensor, act: int, grad: int, alpha: float, scale: float
) -> Tensor:
    """Return the leaky ReLU (``act`` 3) of input and bias, times ``scale``; with ``grad`` 1, its derivative.

    ``refer`` is the output that says where the activation was positive.
    """
    total = input + bias.reshape(1, -1, *[1] * (input.ndim - 2)) if bias.numel() else input
    if act != 3:
        return total * scale
    sign = refer if grad else total
    return torch.where(sign > 0, total, total * alpha) * scale
