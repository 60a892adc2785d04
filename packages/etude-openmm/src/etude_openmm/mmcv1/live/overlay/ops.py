"""Ops of ``mmcv.ops`` without compiled code: torchvision's if it is installed, else plain torch.

mmcv-lite has ``mmcv/ops/*.py`` without the compiled functions that they call. An op that is not available raises
only when it is called, so that everything can be imported.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from etude.errors import UserError


class MissingOp(UserError, NotImplementedError):
    """A compiled op was called that is not available."""


class CompiledOps:
    """Stands for ``mmcv._ext``: its functions by name, each in plain torch or one that raises."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _PLAIN[name] if name in _PLAIN else _missing(name)


def load_ext(name: str, funcs: Sequence[str]) -> Any:
    """Return mmcv's compiled functions, or their replacement."""
    try:
        return importlib.import_module(f"mmcv.{name}")
    except ImportError:
        return CompiledOps()


def check_ops_exist() -> bool:
    return False


def _missing(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise MissingOp(
            f"the op {name!r} of mmcv.ops needs compiled code, and neither mmcv-lite nor Étude has it; "
            "install an mmcv with ops (`pip install mmcv==1.7.2`, or mmcv 2.x, built for your torch)"
        )

    return refuse


@functools.cache
def _torchvision() -> Any:
    """Return ``torchvision.ops`` if it works here, else None."""
    try:
        found = importlib.import_module("torchvision.ops")
        # A torchvision that was built for another torch can be imported, and fails only when an op is called.
        found.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (ImportError, RuntimeError, AttributeError, OSError):
        return None
    return found


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Normalise images per channel, as torchvision's function of this name does."""
    at, by = (tensor.new_tensor(values).view(-1, 1, 1) for values in (mean, std))
    return (tensor - at) / by


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int = 0) -> Tensor:
    """Return the indices of the kept boxes, best first. ``offset`` is added to widths and heights."""
    # torchvision's nms has no offset.
    vision = _torchvision() if offset == 0 else None
    if vision is not None:
        kept: Tensor = vision.nms(boxes, scores, iou_threshold)
        return kept
    order = scores.sort(descending=True, stable=True).indices
    over = (_overlaps(boxes[order], offset) > iou_threshold).cpu()
    keep = torch.ones(len(order), dtype=torch.bool)
    for index in range(len(order)):
        if keep[index]:
            keep[index + 1 :] &= ~over[index, index + 1 :]
    return order[keep.to(order.device)]


def _overlaps(boxes: Tensor, offset: int) -> Tensor:
    """Return the pairwise intersection over union of boxes."""
    size = boxes[:, 2:] - boxes[:, :2] + offset
    area = size[:, 0] * size[:, 1]
    low, high = torch.max(boxes[:, None, :2], boxes[None, :, :2]), torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
    common = (high - low + offset).clamp(min=0).prod(dim=2)
    return common / (area[:, None] + area[None] - common)


def soft_nms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
    *,
    iou_threshold: float,
    sigma: float,
    min_score: float,
    method: int,
    offset: int,
) -> Tensor:
    """Fill ``dets`` with boxes and lowered scores, best first, and return their indices.

    ``method`` 0 drops overlapping boxes, 1 lowers their scores linearly, 2 by a Gaussian.
    """
    overlaps, left = _overlaps(boxes, offset), scores.clone()
    rest, found = torch.arange(len(boxes)), list[int]()
    while len(rest):
        best = rest[left[rest].argmax()]
        dets[len(found)] = torch.cat([boxes[best], left[best][None]])
        found.append(int(best))
        rest = rest[rest != best]
        overlap = overlaps[best, rest]
        if method == 2:
            factor = torch.exp(-(overlap**2) / sigma)
        else:
            lowered = 1 - overlap if method == 1 else torch.zeros_like(overlap)
            factor = torch.where(overlap >= iou_threshold, lowered, torch.ones_like(overlap))
        left[rest] = left[rest] * factor
        rest = rest[left[rest] >= min_score]
    return torch.tensor(found, dtype=torch.long)


def replace_roi_align(module: ModuleType) -> None:
    """Replace the function in ``mmcv.ops.roi_align`` by one without compiled code."""
    if isinstance(load_ext("_ext", ()), CompiledOps):
        vars(module)["roi_align"] = roi_align


def replace_focal_loss(module: ModuleType) -> None:
    """Replace the functions in ``mmcv.ops.focal_loss`` by ones without compiled code."""
    if isinstance(load_ext("_ext", ()), CompiledOps):
        vars(module)["sigmoid_focal_loss"] = sigmoid_focal_loss
        vars(module)["softmax_focal_loss"] = softmax_focal_loss


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
    if pool_mode != "avg":
        _missing("roi_align with pool_mode='max'")()
    height, width = (output_size, output_size) if isinstance(output_size, int) else output_size
    vision = _torchvision()
    if vision is not None:
        taken: Tensor = vision.roi_align(input, rois, (height, width), spatial_scale, sampling_ratio, aligned)
        return taken
    box = rois[:, 1:].float() * spatial_scale - (0.5 if aligned else 0.0)
    size = box[:, 2:] - box[:, :2]
    # Without ``aligned``, mmcv's kernel makes every box at least one cell wide.
    size = size if aligned else size.clamp(min=1)
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
    counts = torch.full_like(start, ratio) if ratio > 0 else (size / bins).ceil().clamp(min=1)
    for count in sorted(set(counts.tolist())):
        at = (counts == count).nonzero(as_tuple=True)[0]
        out[at] = _mean_of_points(start[at], size[at] / bins, bins, cells, int(count))
    return out


def _mean_of_points(start: Tensor, step: Tensor, bins: int, cells: int, points: int) -> Tensor:
    inside = (torch.arange(points, device=start.device) + 0.5) / points
    position = torch.arange(bins, device=start.device)[:, None] + inside
    at = start[:, None, None] + position[None] * step[:, None, None]
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


_PLAIN: dict[str, Callable[..., Any]] = {"nms": nms, "softnms": soft_nms}
