"""Multi-scale deformable attention: each query looks at a few points of every level."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from etude_openmm.shared.ops.vision import gradients, sample


def attended(value: Tensor, locations: Tensor, weights: Tensor, *, shapes: Tensor) -> Tensor:
    """Return the weighted values at ``locations`` (batch, queries, heads, levels, points, xy), as (batch, queries, …).

    ``value`` (batch, cells of all levels, heads, channels) has the levels with the ``shapes`` (height, width).
    """
    batch, _, heads, channels = value.shape
    queries = locations.shape[1]
    sizes = [(int(height), int(width)) for height, width in shapes.tolist()]
    found = value.new_zeros(batch * heads, channels, queries)
    for level, part in enumerate(torch.split(value, [height * width for height, width in sizes], dim=1)):
        height, width = sizes[level]
        image = part.permute(0, 2, 3, 1).reshape(batch * heads, channels, height, width)
        at = locations[:, :, :, level].transpose(1, 2).flatten(0, 1)
        values = sample(image, at[..., 1] * height - 0.5, at[..., 0] * width - 0.5)
        share = weights[:, :, :, level].transpose(1, 2).flatten(0, 1)
        found = found + (values * share[:, None]).sum(-1)
    return found.reshape(batch, heads * channels, queries).transpose(1, 2).contiguous()


def ms_deform_attn_forward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    im2col_step: int,
) -> Tensor:
    """Return :func:`attended`."""
    return attended(value, sampling_locations, attention_weights, shapes=value_spatial_shapes)


def ms_deform_attn_backward(
    value: Tensor,
    value_spatial_shapes: Tensor,
    value_level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad_output: Tensor,
    grad_value: Tensor,
    grad_sampling_loc: Tensor,
    grad_attn_weight: Tensor,
    im2col_step: int,
) -> None:
    """Fill the gradients of values, locations and weights."""
    look = partial(attended, shapes=value_spatial_shapes)
    found = gradients(look, [value, sampling_locations, attention_weights], grad_output)
    for target, one in zip((grad_value, grad_sampling_loc, grad_attn_weight), found, strict=True):
        target.copy_(one)


def masked_im2col_forward(
    im: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, col: Tensor, *, kernel_h: int, kernel_w: int, pad_h: int,
    pad_w: int,
) -> None:  # fmt: skip
    """Fill ``col`` with what the kernel sees at the chosen cells."""
    padded = torch.nn.functional.pad(im[0], (pad_w, pad_w, pad_h, pad_h))
    rows = mask_h_idx[None, :] + torch.arange(kernel_h, device=im.device)[:, None]
    columns = mask_w_idx[None, :] + torch.arange(kernel_w, device=im.device)[:, None]
    col.copy_(padded[:, rows[:, None], columns[None]].reshape(col.shape))


def masked_col2im_forward(
    col: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, im: Tensor, *, height: int, width: int, channels: int
) -> None:
    """Put the columns at the chosen cells of ``im``."""
    im[0, :, mask_h_idx, mask_w_idx] = col
