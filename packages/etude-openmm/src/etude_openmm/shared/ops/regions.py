"""Features of regions: RoIAlign and RoIPool."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from etude_openmm.shared.ops.vision import gradients, sample, torchvision_ops


def roi_align(
    input: Tensor,
    rois: Tensor,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    pool_mode: str = "avg",
    aligned: bool = True,
) -> Tensor:
    """Return the features inside ``rois`` (image, x1, y1, x2, y2), each resampled to ``output_size``."""
    height, width = (output_size, output_size) if isinstance(output_size, int) else output_size
    vision = torchvision_ops() if pool_mode == "avg" else None
    if vision is not None:
        taken: Tensor = vision.roi_align(input, rois, (height, width), spatial_scale, sampling_ratio, aligned)
        return taken
    box = rois[:, 1:].float() * spatial_scale - (0.5 if aligned else 0.0)
    size = box[:, 2:] - box[:, :2]
    # Without ``aligned``, mmcv's kernel makes every box at least one cell wide.
    size = size if aligned else size.clamp(min=1)
    if pool_mode == "max":
        return _maxima(input, rois[:, 0].long(), box[:, :2], size, (height, width), sampling_ratio)
    rows = _bin_weights(box[:, 1], size[:, 1], height, input.shape[2], sampling_ratio).to(input)
    columns = _bin_weights(box[:, 0], size[:, 0], width, input.shape[3], sampling_ratio).to(input)
    out = input.new_zeros(len(rois), input.shape[1], height, width)
    for image in range(input.shape[0]):
        at = (rois[:, 0] == image).nonzero(as_tuple=True)[0]
        if len(at):
            out = out.index_put((at,), torch.einsum("nph,chw,nqw->ncpq", rows[at], input[image], columns[at]))
    return out


def _bin_weights(start: Tensor, size: Tensor, bins: int, cells: int, ratio: int) -> Tensor:
    """Return a tensor (boxes, bins, cells): the weight of each cell of one axis in each bin.

    The value of a bin is the mean of evenly spaced sample points, each interpolated between two cells. A factor per
    axis is enough, because the points form a grid.
    """
    out = start.new_zeros(len(start), bins, cells)
    counts = _point_counts(size, bins, ratio)
    for count in sorted(set(counts.tolist())):
        at = (counts == count).nonzero(as_tuple=True)[0]
        out[at] = _mean_of_points(start[at], size[at] / bins, bins, cells, int(count))
    return out


def _point_counts(size: Tensor, bins: int, ratio: int) -> Tensor:
    return torch.full_like(size, ratio) if ratio > 0 else (size / bins).ceil().clamp(min=1)


def _positions(start: Tensor, step: Tensor, bins: int, points: int) -> Tensor:
    """Return the sample points (boxes, bins, points) of one axis, in cells."""
    inside = (torch.arange(points, device=start.device) + 0.5) / points
    position = torch.arange(bins, device=start.device)[:, None] + inside
    return start[:, None, None] + position[None] * step[:, None, None]


def _mean_of_points(start: Tensor, step: Tensor, bins: int, cells: int, points: int) -> Tensor:
    at = _positions(start, step, bins, points)
    # mmcv's kernel takes points up to one cell outside as points of the border, and ignores those further away.
    counts = (at >= -1) & (at <= cells)
    at = at.clamp(min=0)
    low = at.floor().clamp(max=cells - 1)
    high = (low + 1).clamp(max=cells - 1)
    share = torch.where(low >= cells - 1, torch.zeros_like(at), at - low)
    out = start.new_zeros(len(start), bins, cells)
    out.scatter_add_(2, low.long(), (1 - share) * counts)
    out.scatter_add_(2, high.long(), share * counts)
    return out / points


def _maxima(input: Tensor, images: Tensor, start: Tensor, size: Tensor, bins: tuple[int, int], ratio: int) -> Tensor:
    """Return the largest of the sample points of each bin."""
    found = []
    for index in range(len(start)):
        counts = [int(_point_counts(size[index, axis], bins[1 - axis], ratio)) for axis in (1, 0)]
        axes = [
            _positions(start[index, axis][None], (size[index, axis] / bins[1 - axis])[None], bins[1 - axis], count)[0]
            for axis, count in zip((1, 0), counts, strict=True)
        ]
        inside = [(at >= -1) & (at <= cells) for at, cells in zip(axes, input.shape[2:], strict=True)]
        near = [at.clamp(0, cells - 1) for at, cells in zip(axes, input.shape[2:], strict=True)]
        shape = (len(near[0]), len(near[1]), counts[0], counts[1])
        rows, columns = (at.expand(shape) for at in (near[0][:, None, :, None], near[1][None, :, None, :]))
        values = sample(input[images[index]][None], rows[None], columns[None])[0]
        values = values * (inside[0][:, None, :, None] & inside[1][None, :, None, :])
        found.append(values.flatten(-2).amax(-1))
    return torch.stack(found) if found else input.new_zeros(0, input.shape[1], *bins)


def roi_align_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Fill ``output`` with :func:`roi_align`; ``pool_mode`` 0 takes the largest point of a bin, 1 the mean."""
    mode = "avg" if pool_mode else "max"
    output.copy_(roi_align(input, rois, (aligned_height, aligned_width), spatial_scale, sampling_ratio, mode, aligned))


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    aligned_height: int,
    aligned_width: int,
    spatial_scale: float,
    sampling_ratio: int,
    pool_mode: int,
    aligned: bool,
) -> None:
    """Add the gradient of the features to ``grad_input``."""
    if not pool_mode:
        raise NotImplementedError("the gradient of roi_align with pool_mode='max' needs mmcv's compiled ops")

    def pooled(features: Tensor) -> Tensor:
        return roi_align(features, rois, (aligned_height, aligned_width), spatial_scale, sampling_ratio, "avg", aligned)

    grad_input += gradients(pooled, [grad_input], grad_output)[0]  # the mean is linear, so any features do


def roi_pool_forward(
    input: Tensor,
    rois: Tensor,
    output: Tensor,
    argmax: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Fill ``output`` with the largest value of each bin, and ``argmax`` with its cell; 0 and -1 for empty bins."""
    height, width = input.shape[2:]
    output.zero_()
    argmax.fill_(-1)
    for index, (image, left, top, right, bottom) in enumerate(rois.tolist()):
        x, y = left * spatial_scale, top * spatial_scale
        wide, high = (right + 1) * spatial_scale - x, (bottom + 1) * spatial_scale - y
        if wide <= 0 or high <= 0:
            continue
        features = input[int(image)]
        rows, columns = _cells(y, high, pooled_height, height), _cells(x, wide, pooled_width, width)
        for row, (top_cell, bottom_cell) in enumerate(rows):
            for column, (left_cell, right_cell) in enumerate(columns):
                if bottom_cell > top_cell and right_cell > left_cell:
                    part = features[:, top_cell:bottom_cell, left_cell:right_cell].flatten(1)
                    output[index, :, row, column], at = part.max(1)
                    span = right_cell - left_cell
                    argmax[index, :, row, column] = (top_cell + at // span) * width + left_cell + at % span


def _cells(start: float, size: float, bins: int, cells: int) -> list[tuple[int, int]]:
    """Return the first and the last cell, exclusive, of each bin of one axis."""
    step = size / bins
    ends = ((math.floor(bin * step + start), math.ceil((bin + 1) * step + start)) for bin in range(bins))
    return [(min(max(low, 0), cells), min(max(high, 0), cells)) for low, high in ends]


def roi_pool_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax: Tensor,
    grad_input: Tensor,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> None:
    """Add each gradient to the cell that its value came from."""
    for index in range(len(rois)):
        at = argmax[index].flatten(1).long()
        grad = grad_output[index].flatten(1) * (at >= 0)
        grad_input[int(rois[index, 0])].view(grad_input.shape[1], -1).scatter_add_(1, at.clamp(min=0), grad)
