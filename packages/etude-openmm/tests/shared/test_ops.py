"""The plain ops against literal loops that follow mmcv's kernels, and their gradients against small differences."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from etude.errors import UserError
from etude_openmm.shared.ops import boxes, deform, ext, losses, regions, resampling
from etude_openmm.shared.ops.attention import attended


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def point(image: Tensor, y: float, x: float) -> Tensor:
    """Return the bilinear value of ``image`` (c, h, w) at a point; cells outside are 0."""
    height, width = image.shape[1:]
    low_y, low_x = math.floor(y), math.floor(x)
    total = torch.zeros_like(image[:, 0, 0])
    for row in (low_y, low_y + 1):
        for column in (low_x, low_x + 1):
            if 0 <= row < height and 0 <= column < width:
                total = total + image[:, row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def some_boxes(count: int, size: float = 20) -> Tensor:
    start = torch.rand(count, 2) * size
    return torch.cat([start, start + torch.rand(count, 2) * size / 2 + 1], 1)


def iou(a: list[float], b: list[float], offset: float = 0) -> float:
    wide = max(min(a[2], b[2]) - max(a[0], b[0]) + offset, 0)
    high = max(min(a[3], b[3]) - max(a[1], b[1]) + offset, 0)
    areas = [(one[2] - one[0] + offset) * (one[3] - one[1] + offset) for one in (a, b)]
    return wide * high / (sum(areas) - wide * high)


class TestBoxes:
    @pytest.mark.parametrize("offset", [0, 1])
    def test_nms_keeps_what_no_better_box_covers(self, offset: int) -> None:
        found, scores = some_boxes(60), torch.rand(60)
        kept: list[int] = []
        for index in scores.argsort(descending=True).tolist():
            if all(iou(found[index].tolist(), found[other].tolist(), offset) <= 0.3 for other in kept):
                kept.append(index)
        assert ext.nms(found, scores, iou_threshold=0.3, offset=offset).tolist() == kept
        assert 5 < len(kept) < 60

    def test_nms_match_lists_what_each_kept_box_covers(self) -> None:
        found = torch.cat([some_boxes(40), torch.rand(40, 1)], 1)
        groups, left = [], found[:, 4].argsort(descending=True).tolist()
        while left:
            first, *others = left
            covered = [one for one in others if iou(found[first].tolist(), found[one].tolist()) >= 0.2]
            groups.append([first, *covered])
            left = [one for one in others if one not in covered]
        assert ext.nms_match(found, iou_threshold=0.2) == groups

    @pytest.mark.parametrize("method", [0, 1, 2])
    def test_softnms_lowers_scores(self, method: int) -> None:
        found, scores = some_boxes(30), torch.rand(30)
        expected, left = [], dict(enumerate(scores.tolist()))
        while left:
            best = max(left, key=lambda one: left[one])
            expected.append((best, left.pop(best)))
            for other in list(left):
                common = iou(found[best].tolist(), found[other].tolist())
                factor = {
                    0: float(common < 0.3),
                    1: 1 - common if common >= 0.3 else 1,
                    2: math.exp(-(common**2) / 0.5),
                }
                left[other] *= factor[method]
                if left[other] < 0.05:
                    del left[other]
        dets = torch.zeros(30, 5)
        kept = ext.softnms(found, scores, dets, iou_threshold=0.3, sigma=0.5, min_score=0.05, method=method, offset=0)
        assert kept.tolist() == [index for index, _ in expected]
        torch.testing.assert_close(dets[: len(kept), 4], torch.tensor([score for _, score in expected]))

    @pytest.mark.parametrize("mode", [0, 1])
    @pytest.mark.parametrize("aligned", [False, True])
    def test_bbox_overlaps(self, mode: int, aligned: bool) -> None:
        one, other = some_boxes(6), some_boxes(6)
        out = torch.zeros(6) if aligned else torch.zeros(6, 6)
        ext.bbox_overlaps(one, other, out, mode=mode, aligned=aligned, offset=0)
        for row, column in [(i, i) if aligned else (i, j) for i in range(6) for j in range(1 if aligned else 6)]:
            a, b = one[row].tolist(), other[column].tolist()
            both = iou(a, b)
            area, second = ((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
            common = both * (area + second) / (1 + both)
            assert float(out[row] if aligned else out[row, column]) == pytest.approx(
                both if mode == 0 else common / area, abs=1e-5
            )

    def test_rotated_overlaps_are_those_of_clipped_polygons(self) -> None:
        one = torch.cat([torch.rand(8, 2) * 4, torch.rand(8, 2) * 4 + 0.5, torch.rand(8, 1) * 6 - 3], 1)
        other = torch.cat([torch.rand(8, 2) * 4, torch.rand(8, 2) * 4 + 0.5, torch.rand(8, 1) * 6 - 3], 1)
        other[:2] = one[:2]
        out = torch.zeros(64)
        ext.box_iou_rotated(one, other, out, mode_flag=0, aligned=False)
        for index in range(64):
            a, b = one[index // other.shape[0]].tolist(), other[index % other.shape[0]].tolist()
            common = clipped_area(corners(a), corners(b))
            assert float(out[index]) == pytest.approx(common / (a[2] * a[3] + b[2] * b[3] - common), abs=1e-5)
        assert out[0] == pytest.approx(1)

    def test_nms_rotated_of_upright_boxes_is_nms(self) -> None:
        found, scores = some_boxes(40), torch.rand(40)
        size = found[:, 2:] - found[:, :2]
        turned = torch.cat([found[:, :2] + size / 2, size, torch.zeros(40, 1)], 1)
        order = scores.argsort(descending=True)
        kept = ext.nms_rotated(turned, scores, order, turned[order], 0.3, False)
        assert kept.tolist() == boxes.nms(found, scores, 0.3).tolist()
        labels = torch.arange(40.0)[:, None]
        assert len(ext.nms_rotated(torch.cat([turned, labels], 1), scores, order, turned, labels, 0.3, True)) == 40


def corners(box: list[float]) -> list[tuple[float, float]]:
    x, y, wide, high, angle = box
    cos, sin = math.cos(angle), math.sin(angle)
    return [
        (x + a * wide / 2 * cos - b * high / 2 * sin, y + a * wide / 2 * sin + b * high / 2 * cos)
        for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]


def clipped_area(subject: list[tuple[float, float]], clip: list[tuple[float, float]]) -> float:
    """Return the area of a polygon after cutting it at every edge of the other (Sutherland and Hodgman)."""
    for start, end in zip(clip, clip[1:] + clip[:1], strict=True):
        side = [(end[0] - start[0]) * (y - start[1]) - (end[1] - start[1]) * (x - start[0]) for x, y in subject]
        cut = []
        for index, (here, at) in enumerate(zip(subject, side, strict=True)):
            there, other = subject[index - 1], side[index - 1]
            if at * other < 0:
                share = other / (other - at)
                cut.append((there[0] + share * (here[0] - there[0]), there[1] + share * (here[1] - there[1])))
            if at >= 0:
                cut.append(here)
        subject = cut
    return abs(sum(a[0] * b[1] - a[1] * b[0] for a, b in zip(subject, subject[1:] + subject[:1], strict=True))) / 2


class TestRegions:
    ROIS = torch.tensor([[0, 1.0, 2, 9, 12], [1, -3, -2, 4, 5], [1, 6, 6, 6.5, 20], [0, 0, 0, 40, 40]])

    @pytest.mark.parametrize("ratio", [0, 2])
    @pytest.mark.parametrize("aligned", [False, True])
    @pytest.mark.parametrize("mode", ["avg", "max"])
    def test_roi_align_is_the_mean_or_the_maximum_of_points(self, mode: str, aligned: bool, ratio: int) -> None:
        features, out = torch.rand(2, 3, 12, 14).double(), torch.zeros(4, 3, 2, 3).double()
        ext.roi_align_forward(
            features, self.ROIS, out, out, out, aligned_height=2, aligned_width=3, spatial_scale=0.5,
            sampling_ratio=ratio, pool_mode=int(mode == "avg"), aligned=aligned,
        )  # fmt: skip
        for index, (image, *box) in enumerate(self.ROIS.tolist()):
            x, y, right, bottom = (value * 0.5 - (0.5 if aligned else 0) for value in box)
            wide, high = (max(size, 0 if aligned else 1) for size in (right - x, bottom - y))
            rows, columns = ratio or math.ceil(high / 2), ratio or math.ceil(wide / 3)
            for row in range(2):
                for column in range(3):
                    values = [
                        roi_point(features[int(image)], y + (row + (i + 0.5) / rows) * high / 2,
                                  x + (column + (j + 0.5) / columns) * wide / 3)
                        for i in range(rows) for j in range(columns)
                    ]  # fmt: skip
                    whole = torch.stack(values)
                    expected = whole.mean(0) if mode == "avg" else whole.amax(0)
                    torch.testing.assert_close(out[index, :, row, column], expected, atol=1e-5, rtol=1e-5)

    def test_the_gradient_of_roi_align(self) -> None:
        features = torch.rand(2, 2, 6, 6, dtype=torch.double, requires_grad=True)
        rois = torch.tensor([[0, 0.0, 0, 5, 5], [1, 1, 2, 4, 3]])
        out = regions.roi_align(features, rois, 2)
        grad = torch.rand_like(out)
        (expected,) = torch.autograd.grad(out, features, grad)
        found = torch.zeros_like(features)
        ext.roi_align_backward(
            grad, rois, grad, grad, found, aligned_height=2, aligned_width=2, spatial_scale=1.0, sampling_ratio=0,
            pool_mode=1, aligned=True,
        )  # fmt: skip
        assert torch.equal(found, expected)
        assert torch.autograd.gradcheck(lambda one: regions.roi_align(one, rois, 2), features)

    def test_roi_pool_takes_the_largest_cell_of_a_bin(self) -> None:
        features = torch.rand(2, 3, 12, 14)
        out, at = torch.zeros(4, 3, 2, 3), torch.zeros(4, 3, 2, 3, dtype=torch.int)
        size = {"pooled_height": 2, "pooled_width": 3, "spatial_scale": 0.5}
        ext.roi_pool_forward(features, self.ROIS, out, at, **size)
        for index, (image, left, top, right, bottom) in enumerate(self.ROIS.tolist()):
            x, y, wide, high = left / 2, top / 2, (right + 1 - left) / 2, (bottom + 1 - top) / 2
            for row in range(2):
                for column in range(3):
                    cells = [
                        (h, w) for h in range(12) for w in range(14)
                        if math.floor(y + row * high / 2) <= h < math.ceil(y + (row + 1) * high / 2)
                        and math.floor(x + column * wide / 3) <= w < math.ceil(x + (column + 1) * wide / 3)
                    ]  # fmt: skip
                    for channel in range(3):
                        values = [float(features[int(image), channel, h, w]) for h, w in cells]
                        assert float(out[index, channel, row, column]) == (max(values) if values else 0)
        grad, expected = torch.rand_like(out), torch.zeros_like(features)
        for index, channel, row, column in (at >= 0).nonzero().tolist():
            cell = int(at[index, channel, row, column])
            expected[int(self.ROIS[index, 0]), channel, cell // 14, cell % 14] += grad[index, channel, row, column]
        found = torch.zeros_like(features)
        ext.roi_pool_backward(grad, self.ROIS, at, found, **size)
        torch.testing.assert_close(found, expected)


def roi_point(image: Tensor, y: float, x: float) -> Tensor:
    """Return the value of a sample point: mmcv's kernel takes points up to one cell outside to the border."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros_like(image[:, 0, 0])
    return point(image, min(max(y, 0), height - 1), min(max(x, 0), width - 1))


class TestLosses:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_sigmoid_focal_loss(self, weighted: bool) -> None:
        logits, target = torch.randn(6, 4).double(), torch.tensor([0, 3, 4, 1, 2, 4])
        weight = torch.rand(4).double() if weighted else torch.zeros(0).double()
        out, found = torch.zeros_like(logits), torch.zeros_like(logits)
        ext.sigmoid_focal_loss_forward(logits, target, weight, out, gamma=1.5, alpha=0.3)
        ext.sigmoid_focal_loss_backward(logits, target, weight, found, gamma=1.5, alpha=0.3)
        for row in range(6):
            for column in range(4):
                p = 1 / (1 + math.exp(-float(logits[row, column])))
                right = int(target[row]) == column
                loss = -0.3 * (1 - p) ** 1.5 * math.log(p) if right else -0.7 * p**1.5 * math.log(1 - p)
                slope = (
                    -0.3 * (1 - p) ** 1.5 * (1 - p - 1.5 * p * math.log(p)) if right
                    else -0.7 * p**1.5 * (1.5 * (1 - p) * math.log(1 - p) - p)
                )  # fmt: skip
                scale = float(weight[min(int(target[row]), 3)]) if weighted else 1.0
                assert float(out[row, column]) == pytest.approx(loss * scale)
                assert float(found[row, column]) == pytest.approx(slope * scale)

    def test_softmax_focal_loss(self) -> None:
        logits, target = torch.randn(5, 3, dtype=torch.double, requires_grad=True), torch.tensor([0, 2, -1, 1, 1])
        chances, weight = logits.softmax(1), torch.rand(3).double()
        out, found = torch.zeros(5).double(), torch.zeros(5, 3).double()
        ext.softmax_focal_loss_forward(chances.detach(), target, weight, out, gamma=2.0, alpha=0.25)
        ext.softmax_focal_loss_backward(chances.detach(), target, weight, out, found, gamma=2.0, alpha=0.25)
        rows = [
            -0.25 * (1 - chances[row, at]) ** 2 * chances[row, at].log() * weight[at]
            if at >= 0
            else chances[row, 0] * 0
            for row, at in enumerate(target.tolist())
        ]
        torch.testing.assert_close(out, torch.stack(rows).detach())
        torch.testing.assert_close(found, torch.autograd.grad(sum(rows), logits)[0])  # type: ignore[arg-type]

    def test_the_reductions_are_those_of_mmcv(self) -> None:
        logits, target = torch.randn(6, 4), torch.tensor([0, 3, 4, 1, 2, 4])
        each = losses.sigmoid_focal_loss(logits, target, reduction="none")
        torch.testing.assert_close(losses.sigmoid_focal_loss(logits, target), each.sum() / 6)
        torch.testing.assert_close(losses.sigmoid_focal_loss(logits, target, reduction="sum"), each.sum())


class TestDeformableConvolutions:
    KEYS = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2, "deform_groups": 2}

    def given(self, *, modulated: bool) -> tuple[Tensor, ...]:
        image, weight = torch.rand(2, 4, 5, 6).double(), torch.rand(6, 2, 3, 2).double()
        rows, columns = (5 + 2 - 2 - 1) // 2 + 1, 6 + 4 - 2
        offset = torch.randn(2, 2 * 2 * 6, rows, columns).double()
        mask = (
            torch.rand(2, 2 * 6, rows, columns).double() if modulated else torch.ones(2, 2 * 6, rows, columns).double()
        )
        return image, offset, weight, mask

    def test_the_values_are_sums_over_moved_points(self) -> None:
        image, offset, weight, mask = self.given(modulated=True)
        out = deform.deform_conv2d(image, offset, weight, mask, **self.KEYS)  # type: ignore[arg-type]
        expected = torch.zeros_like(out)
        for batch, row, column in [
            (b, r, c) for b in range(2) for r in range(out.shape[2]) for c in range(out.shape[3])
        ]:
            for tap in range(6):
                for group in range(2):
                    at = 2 * (group * 6 + tap)
                    y = row * 2 - 1 + tap // 2 + float(offset[batch, at, row, column])
                    x = column - 2 + tap % 2 * 2 + float(offset[batch, at + 1, row, column])
                    value = point(image[batch, 2 * group : 2 * group + 2], y, x) * mask[batch, at // 2, row, column]
                    kernel = weight[3 * group : 3 * group + 3, :, tap // 2, tap % 2]
                    expected[batch, 3 * group : 3 * group + 3, row, column] += kernel @ value
        torch.testing.assert_close(out, expected)

    def test_no_offset_is_a_convolution(self) -> None:
        image, offset, weight, _ = self.given(modulated=False)
        out = deform.deform_conv2d(image, offset * 0, weight, **self.KEYS)  # type: ignore[arg-type]
        torch.testing.assert_close(out, functional.conv2d(image, weight, None, (2, 1), (1, 2), (1, 2), 2))

    def test_the_gradients(self) -> None:
        image, offset, weight, mask = (one.requires_grad_() for one in self.given(modulated=True))
        bias = torch.rand(6).double().requires_grad_()

        def whole(*inputs: Tensor) -> Tensor:
            return deform.deform_conv2d(*inputs, **self.KEYS)  # type: ignore[arg-type]

        assert torch.autograd.gradcheck(whole, (image, offset, weight, mask))
        out = whole(image, offset, weight, mask) + bias[:, None, None]
        grad = torch.rand_like(out)
        expected = torch.autograd.grad(out, (image, weight, bias, offset, mask), grad)
        found = [torch.zeros_like(one) for one in (image, weight, bias, offset, mask)]
        ext.modulated_deform_conv_backward(
            image, weight, bias, bias, offset, mask, bias, *found, grad, kernel_h=3, kernel_w=2, stride_h=2, stride_w=1,
            pad_h=1, pad_w=2, dilation_h=1, dilation_w=2, group=2, deformable_group=2, with_bias=True,
        )  # fmt: skip
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)

    def test_the_first_version(self) -> None:
        image, offset, weight, _ = (one.requires_grad_() for one in self.given(modulated=False))
        out = deform.deform_conv2d(image, offset, weight, **self.KEYS)  # type: ignore[arg-type]
        grad, empty = torch.rand_like(out), torch.zeros(0)
        expected = torch.autograd.grad(out, (image, offset, weight), grad)
        keys = {
            "kW": 2, "kH": 3, "dW": 1, "dH": 2, "padW": 2, "padH": 1, "dilationW": 2, "dilationH": 1, "group": 2,
            "deformable_group": 2, "im2col_step": 2,
        }  # fmt: skip
        filled, found = torch.zeros_like(out), [torch.zeros_like(one) for one in (image, offset, weight)]
        ext.deform_conv_forward(image, weight, offset, filled, empty, empty, **keys)
        ext.deform_conv_backward_input(image, offset, grad, found[0], found[1], weight, empty, **keys)
        ext.deform_conv_backward_parameters(image, offset, grad, found[2], empty, empty, scale=1, **keys)
        torch.testing.assert_close(filled, out)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_deformable_attention_is_a_sum_over_points_of_every_level() -> None:
    shapes = torch.tensor([[4, 5], [2, 3]])
    value = torch.rand(2, 26, 2, 3).double().requires_grad_()
    locations = (torch.rand(2, 4, 2, 2, 3, 2).double() * 1.4 - 0.2).requires_grad_()
    weights = torch.rand(2, 4, 2, 2, 3).double().requires_grad_()
    out = ext.ms_deform_attn_forward(value, shapes, torch.tensor([0, 20]), locations, weights, im2col_step=64)
    levels = value.split([20, 6], 1)
    for batch, query, head in [(b, q, h) for b in range(2) for q in range(4) for h in range(2)]:
        total = torch.zeros(3).double()
        for level, (height, width) in enumerate(shapes.tolist()):
            image = levels[level][batch, :, head].T.reshape(3, height, width)
            for spot in range(3):
                x, y = locations[batch, query, head, level, spot].tolist()
                total = total + weights[batch, query, head, level, spot] * point(
                    image, y * height - 0.5, x * width - 0.5
                )
        torch.testing.assert_close(out[batch, query, 3 * head : 3 * head + 3], total)
    grad, given = torch.rand_like(out), (value, locations, weights)
    expected = torch.autograd.grad(attended(*given, shapes=shapes), given, grad)
    found = [torch.zeros_like(one) for one in given]
    ext.ms_deform_attn_backward(value, shapes, shapes, locations, weights, grad, *found, im2col_step=64)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_carafe_weighs_a_neighbourhood_for_each_new_cell() -> None:
    features, masks = torch.rand(1, 4, 3, 4).double(), torch.rand(1, 2 * 9, 6, 8).double()
    keys: Any = {"kernel_size": 3, "group_size": 2, "scale_factor": 2}
    out = torch.zeros(1, 4, 6, 8).double()
    ext.carafe_naive_forward(features, masks, out, **keys)
    padded = functional.pad(features, (1, 1, 1, 1))
    for channel, row, column in [(c, r, k) for c in range(4) for r in range(6) for k in range(8)]:
        seen = padded[0, channel, row // 2 : row // 2 + 3, column // 2 : column // 2 + 3].flatten()
        group = channel // 2
        expected = (seen * masks[0, 9 * group : 9 * group + 9, row, column]).sum()
        torch.testing.assert_close(out[0, channel, row, column], expected)
    leaves = (features.requires_grad_(), masks.requires_grad_())
    grad = torch.rand_like(out)
    expected_grads = torch.autograd.grad(resampling.carafe(*leaves, **keys), leaves, grad)
    found, kept, empty = [torch.zeros_like(one) for one in leaves], torch.zeros_like(features), torch.zeros(0)
    ext.carafe_forward(features.detach(), masks.detach(), kept, empty, empty, out, **keys)
    ext.carafe_backward(grad, kept, masks, empty, empty, empty, empty, *found, **keys)
    for one, other in zip(found, expected_grads, strict=True):
        torch.testing.assert_close(one, other)


def test_a_masked_convolution_is_the_convolution_where_the_mask_is() -> None:
    image, weight, mask = torch.rand(1, 3, 5, 6), torch.rand(4, 3, 3, 3), torch.rand(5, 6) > 0.5
    rows, columns = mask.nonzero().T
    seen, out = torch.zeros(27, len(rows)), torch.zeros(1, 4, 5, 6)
    ext.masked_im2col_forward(image, rows, columns, seen, kernel_h=3, kernel_w=3, pad_h=1, pad_w=1)
    ext.masked_col2im_forward(weight.view(4, -1) @ seen, rows, columns, out, height=5, width=6, channels=4)
    torch.testing.assert_close(out, functional.conv2d(image, weight, padding=1) * mask)


@pytest.mark.parametrize("flip", [False, True])
def test_upfirdn2d_puts_zeros_between_filters_and_thins_out(flip: bool) -> None:
    image, taps = torch.rand(1, 2, 3, 4), torch.rand(2, 3)
    out = ext.upfirdn2d(image, taps, 2, 3, 2, 1, 1, 2, 0, -1, flip, 1.5)
    spread = torch.zeros(1, 2, 9, 8)
    spread[:, :, ::3, ::2] = image
    padded = functional.pad(spread, (1, 2))[:, :, :-1]
    kernel = taps if flip else taps.flip(0, 1)
    for row in range(out.shape[2]):
        for column in range(out.shape[3]):
            part = padded[0, :, row : row + 2, 2 * column : 2 * column + 3]
            torch.testing.assert_close(out[0, :, row, column], (part * kernel).sum((1, 2)) * 1.5)
    assert out.shape == (1, 2, 7, 5)


def test_fused_bias_leakyrelu_and_its_derivative() -> None:
    image, bias, none = torch.randn(2, 3, 4), torch.randn(3), torch.zeros(0)
    out = ext.fused_bias_leakyrelu(image, bias, none, act=3, grad=0, alpha=0.2, scale=2.0)
    torch.testing.assert_close(out, functional.leaky_relu(image + bias[:, None], 0.2) * 2)
    found = ext.fused_bias_leakyrelu(torch.ones_like(image), none, out, act=3, grad=1, alpha=0.2, scale=2.0)
    torch.testing.assert_close(found, torch.where(image + bias[:, None] > 0, 2.0, 0.4))


def test_a_missing_op_names_itself_when_it_is_called() -> None:
    op = ext.three_nn_forward
    with pytest.raises(UserError, match="the op 'three_nn_forward' of mmcv.ops needs compiled code"):
        op(torch.zeros(1))
    assert not hasattr(ext, "__path__")
