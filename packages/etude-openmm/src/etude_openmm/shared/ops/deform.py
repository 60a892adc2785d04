"""Deformable convolutions: each weight looks at a point of the input that an offset has moved."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from etude_openmm.shared.ops.vision import gradients, sample, torchvision_ops

Pair = tuple[int, int]


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    mask: Tensor | None = None,
    *,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
    deform_groups: int,
) -> Tensor:
    """Return the convolution of the moved points, each times its ``mask``."""
    vision = torchvision_ops()
    if vision is not None:
        found: Tensor = vision.deform_conv2d(input, offset, weight, None, stride, padding, dilation, mask)
        return found
    batch, channels, _, _ = input.shape
    kernel = tuple(weight.shape[2:])
    size = offset.shape[2:]
    points = kernel[0] * kernel[1]
    moved = offset.reshape(batch * deform_groups, points, 2, *size)
    rows, columns = (moved[:, :, axis] + _grid(kernel, size, axis, stride, padding, dilation, input) for axis in (0, 1))
    values = sample(input.reshape(batch * deform_groups, channels // deform_groups, *input.shape[2:]), rows, columns)
    if mask is not None:
        values = values * mask.reshape(batch * deform_groups, 1, points, *size)
    values = values.reshape(batch, groups, channels // groups * points, size[0] * size[1])
    weights = weight.reshape(groups, weight.shape[0] // groups, -1)
    return torch.einsum("gok,bgkn->bgon", weights, values).reshape(batch, weight.shape[0], *size)


def _grid(
    kernel: tuple[int, ...], size: torch.Size, axis: int, stride: Pair, padding: Pair, dilation: Pair, like: Tensor
) -> Tensor:
    """Return where the weights look without offsets, along one axis: (points, rows, columns)."""
    taps = torch.arange(kernel[axis], device=like.device, dtype=like.dtype) * dilation[axis]
    starts = torch.arange(size[axis], device=like.device, dtype=like.dtype) * stride[axis] - padding[axis]
    at = (taps[:, None] + starts).reshape(kernel[axis], *([size[0], 1] if axis == 0 else [1, size[1]]))
    return at.repeat_interleave(kernel[1], 0) if axis == 0 else at.repeat(kernel[0], 1, 1)


def deform_conv_forward(
    input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor, ones: Tensor, *,
    kW: int, kH: int, dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int,
    group: int, deformable_group: int, im2col_step: int,
) -> None:  # fmt: skip
    """Fill ``output``."""
    output.copy_(deform_conv2d(
        input, offset, weight, stride=(dH, dW), padding=(padH, padW), dilation=(dilationH, dilationW),
        groups=group, deform_groups=deformable_group,
    ))  # fmt: skip


def deform_conv_backward_input(
    input: Tensor, offset: Tensor, grad_output: Tensor, grad_input: Tensor, grad_offset: Tensor, weight: Tensor,
    columns: Tensor, *, kW: int, kH: int, dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int,
    group: int, deformable_group: int, im2col_step: int,
) -> None:  # fmt: skip
    """Fill the gradients of input and offset."""

    def convolved(image: Tensor, moved: Tensor) -> Tensor:
        return deform_conv2d(
            image, moved, weight, stride=(dH, dW), padding=(padH, padW), dilation=(dilationH, dilationW),
            groups=group, deform_groups=deformable_group,
        )  # fmt: skip

    for target, found in zip(
        (grad_input, grad_offset), gradients(convolved, [input, offset], grad_output), strict=True
    ):
        target.copy_(found)


def deform_conv_backward_parameters(
    input: Tensor, offset: Tensor, grad_output: Tensor, grad_weight: Tensor, columns: Tensor, ones: Tensor, *,
    kW: int, kH: int, dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int,
    group: int, deformable_group: int, scale: float, im2col_step: int,
) -> None:  # fmt: skip
    """Add the gradient of the weights, times ``scale``."""

    def convolved(weight: Tensor) -> Tensor:
        return deform_conv2d(
            input, offset, weight, stride=(dH, dW), padding=(padH, padW), dilation=(dilationH, dilationW),
            groups=group, deform_groups=deformable_group,
        )  # fmt: skip

    grad_weight += scale * gradients(convolved, [grad_weight], grad_output)[0]  # linear, so any weights do


def modulated_deform_conv_forward(
    input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor, mask: Tensor, output: Tensor,
    columns: Tensor, *, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, group: int, deformable_group: int, with_bias: bool,
) -> None:  # fmt: skip
    """Fill ``output``."""
    found = deform_conv2d(
        input, offset, weight, mask, stride=(stride_h, stride_w), padding=(pad_h, pad_w),
        dilation=(dilation_h, dilation_w), groups=group, deform_groups=deformable_group,
    )  # fmt: skip
    output.copy_(found + bias[:, None, None] if with_bias else found)


def modulated_deform_conv_backward(
    input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor, mask: Tensor, columns: Tensor,
    grad_input: Tensor, grad_weight: Tensor, grad_bias: Tensor, grad_offset: Tensor, grad_mask: Tensor,
    grad_output: Tensor, *, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int, pad_h: int, pad_w: int,
    dilation_h: int, dilation_w: int, group: int, deformable_group: int, with_bias: bool,
) -> None:  # fmt: skip
    """Fill all gradients."""
    convolved = partial(
        deform_conv2d, stride=(stride_h, stride_w), padding=(pad_h, pad_w), dilation=(dilation_h, dilation_w),
        groups=group, deform_groups=deformable_group,
    )  # fmt: skip
    found = gradients(convolved, [input, offset, weight, mask], grad_output)
    for target, one in zip((grad_input, grad_offset, grad_weight, grad_mask), found, strict=True):
        target.copy_(one)
    if with_bias:
        grad_bias.copy_(grad_output.sum((0, 2, 3)))
