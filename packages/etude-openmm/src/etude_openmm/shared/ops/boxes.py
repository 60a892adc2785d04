"""Overlaps of boxes, and what is suppressed by them: nms, soft nms, nms with matches, rotated boxes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from etude_openmm.shared.ops.vision import torchvision_ops


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int = 0) -> Tensor:
    """Return the indices of the kept boxes, best first. ``offset`` is added to widths and heights."""
    # torchvision's nms has no offset.
    vision = torchvision_ops() if offset == 0 else None
    if vision is not None:
        kept: Tensor = vision.nms(boxes, scores, iou_threshold)
        return kept
    order = scores.sort(descending=True, stable=True).indices
    return order[_unsuppressed(_overlaps(boxes[order], offset) > iou_threshold)]


def _unsuppressed(over: Tensor) -> Tensor:
    """Return which rows are kept: each kept one suppresses the later ones that it overlaps."""
    on_cpu = over.cpu()
    keep = torch.ones(len(on_cpu), dtype=torch.bool)
    for index in range(len(on_cpu)):
        if keep[index]:
            keep[index + 1 :] &= ~on_cpu[index, index + 1 :]
    return keep.to(over.device)


def _overlaps(boxes: Tensor, offset: int) -> Tensor:
    """Return the pairwise intersection over union of boxes."""
    size = boxes[:, 2:] - boxes[:, :2] + offset
    area = size[:, 0] * size[:, 1]
    low, high = torch.max(boxes[:, None, :2], boxes[None, :, :2]), torch.min(boxes[:, None, 2:], boxes[None, :, 2:])
    common = (high - low + offset).clamp(min=0).prod(dim=2)
    return common / (area[:, None] + area[None] - common)


def softnms(
    boxes: Tensor,
    scores: Tensor,
    dets: Tensor,
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


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Return, for each kept box, its index and those of the boxes that it suppresses; best first."""
    order = dets[:, 4].sort(descending=True, stable=True).indices.tolist()
    over = (_overlaps(dets[:, :4], 0) >= iou_threshold).tolist()
    found, gone = [], set[int]()
    for place, index in enumerate(order):
        if index not in gone:
            matched = [other for other in order[place + 1 :] if other not in gone and over[index][other]]
            gone.update(matched)
            found.append([index, *matched])
    return found


def bbox_overlaps(
    bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int = 0, aligned: bool = False, offset: int = 0
) -> None:
    """Fill ``ious`` with intersections over union (``mode`` 0) or over the first box (1)."""
    first, second = (bboxes1, bboxes2) if aligned else (bboxes1[:, None], bboxes2[None])
    areas = [(one[..., 2:] - one[..., :2] + offset).prod(-1) for one in (first, second)]
    low, high = torch.max(first[..., :2], second[..., :2]), torch.min(first[..., 2:], second[..., 2:])
    common = (high - low + offset).clamp(min=0).prod(-1)
    whole = areas[0] if mode == 1 else areas[0] + areas[1] - common
    ious.copy_((common / whole.clamp(min=offset)).reshape(ious.shape))


def box_iou_rotated(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode_flag: int = 0, aligned: bool = False) -> None:
    """Fill ``ious`` for boxes (x, y, w, h, angle): intersection over union (``mode_flag`` 0) or over the first (1)."""
    ious.copy_(rotated_overlaps(bboxes1, bboxes2, over_first=mode_flag == 1, aligned=aligned).reshape(ious.shape))


def rotated_overlaps(first: Tensor, second: Tensor, *, over_first: bool = False, aligned: bool = False) -> Tensor:
    """Return the overlaps of rotated boxes, pairwise unless ``aligned``."""
    first, second = first[:, :5].double(), second[:, :5].double()
    if not aligned:
        shape = (len(first), len(second))
        first, second = (one.expand(*shape, 5).reshape(-1, 5) for one in (first[:, None], second[None]))
    areas = [one[:, 2] * one[:, 3] for one in (first, second)]
    common = _common_area(_corners(first, first), _corners(second, first))
    whole = areas[0] if over_first else areas[0] + areas[1] - common
    found = torch.where((areas[0] < 1e-14) | (areas[1] < 1e-14), torch.zeros_like(common), common / whole)
    return found if aligned else found.reshape(shape)


def _corners(boxes: Tensor, origin: Tensor) -> Tensor:
    """Return the corners (n, 4, 2) of boxes, as seen from the centres of ``origin``."""
    cos, sin = boxes[:, 4].cos()[:, None], boxes[:, 4].sin()[:, None]
    x = boxes[:, 2:3] / 2 * boxes.new_tensor([-1, 1, 1, -1])
    y = boxes[:, 3:4] / 2 * boxes.new_tensor([-1, -1, 1, 1])
    return torch.stack([x * cos - y * sin, x * sin + y * cos], -1) + (boxes[:, :2] - origin[:, :2])[:, None]


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _common_area(first: Tensor, second: Tensor) -> Tensor:
    """Return the area that pairs of rectangles share: of the polygon of crossings and of corners inside the other."""
    edges = [corners.roll(-1, 1) - corners for corners in (first, second)]
    one, other = edges[0][:, :, None], edges[1][:, None]
    between = second[:, None] - first[:, :, None]
    turn = _cross(one, other)
    safe = torch.where(turn.abs() < 1e-14, torch.ones_like(turn), turn)
    along, across = _cross(between, other) / safe, _cross(between, one) / safe
    crosses = (turn.abs() >= 1e-14) & (along >= 0) & (along <= 1) & (across >= 0) & (across <= 1)
    crossings = first[:, :, None] + along[..., None] * one
    points = torch.cat([crossings.flatten(1, 2), first, second], 1)
    valid = torch.cat([crosses.flatten(1), _inside(first, second, edges[1]), _inside(second, first, edges[0])], 1)
    count = valid.sum(1)
    middle = (points * valid[..., None]).sum(1) / count.clamp(min=1)[:, None]
    around = points - middle[:, None]
    angle = torch.atan2(around[..., 1], around[..., 0]).masked_fill(~valid, torch.inf)
    order = angle.argsort(1)
    ring = around.gather(1, order[..., None].expand_as(around))
    # Points that do not count are moved onto the first one, where they span no area.
    ring = torch.where(valid.gather(1, order)[..., None], ring, ring[:, :1])
    area = _cross(ring, ring.roll(-1, 1)).sum(1).abs() / 2
    return torch.where(count > 2, area, torch.zeros_like(area))


def _inside(points: Tensor, corners: Tensor, edges: Tensor) -> Tensor:
    """Return which of the points (n, 4, 2) are inside rectangles, given by corners and edges, or on the border."""
    side = _cross(edges[:, None], points[:, :, None] - corners[:, None])
    slack = 1e-12 * side.abs().amax(-1, keepdim=True)
    return ((side >= -slack).all(-1)) | ((side <= slack).all(-1))


def nms_rotated(dets: Tensor, scores: Tensor, order: Tensor, dets_sorted: Tensor, *rest: Any, **words: Any) -> Tensor:
    """Return the indices of the kept rotated boxes, best first; with labels in a sixth column, by label."""
    given = [one for one in rest if not isinstance(one, Tensor)]  # newer releases pass the labels before the threshold
    threshold = float(words.get("iou_threshold", given[0] if given else 0.5))
    order = scores.sort(descending=True, stable=True).indices
    boxes = dets[order]
    over = rotated_overlaps(boxes, boxes) > threshold
    if boxes.shape[1] > 5 and bool(words.get("multi_label", given[1] if len(given) > 1 else True)):
        over &= boxes[:, None, 5] == boxes[None, :, 5]
    return order[_unsuppressed(over)]
