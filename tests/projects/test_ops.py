"""``mmcv.ops`` of mmcv-lite, which has no compiled part, for code of both generations of mmcv."""

from __future__ import annotations

import pytest

from tests.projects.conftest import Projects

CODE = """\
import sys, warnings
warnings.simplefilter("ignore")
import etude.compat; etude.compat.install()
if sys.argv[1] == "2":
    import mmengine
import mmcv
import torch
from mmcv import ops

print(mmcv.__version__)
torch.manual_seed(0)
boxes = torch.rand(40, 4) * 20
boxes[:, 2:] += boxes[:, :2]
scores, labels = torch.rand(40), torch.randint(0, 3, (40,))
print(ops.batched_nms(boxes, scores, labels, dict(type="nms", iou_threshold=0.4))[1].tolist())
print(ops.batched_nms(boxes, scores, labels, dict(type="soft_nms", iou_threshold=0.4))[1].tolist())
print([one.tolist() for one in ops.nms_match(torch.cat([boxes, scores[:, None]], 1), 0.5)])
turned = torch.cat([boxes, torch.rand(40, 1)], 1)
print(ops.nms_rotated(turned, scores, 0.3, labels)[1].tolist(), float(ops.box_iou_rotated(turned, turned).sum()))
print(float(ops.bbox_overlaps(boxes, boxes).sum()))
image = torch.rand(2, 8, 10, 12).requires_grad_()
rois = torch.tensor([[0, 1.0, 1, 8, 9], [1, 0, 2, 5, 7]])
queries, levels = torch.rand(4, 2, 32), torch.tensor([[3, 4], [2, 2]])
attention = ops.MultiScaleDeformableAttention(32, num_heads=4, num_levels=2, num_points=2)
attention.init_weights()
torch.manual_seed(1)
packs = [ops.DeformConv2dPack(8, 4, 3, padding=1), ops.ModulatedDeformConv2dPack(8, 4, 3, padding=1)]
for pack in packs:
    torch.nn.init.normal_(pack.conv_offset.weight, std=0.1)
results = dict(
    align=ops.RoIAlign(3)(image, rois),
    pool=ops.RoIPool(3)(image, rois),
    deformed=packs[0](image),
    modulated=packs[1](image),
    carafe=ops.CARAFEPack(8, 2)(image),
    sigmoid=ops.sigmoid_focal_loss(image[0, :, 0].T, torch.randint(0, 9, (12,))),
    softmax=ops.softmax_focal_loss(image[0, :, 1].T, torch.randint(0, 8, (12,))),
    leaky=ops.fused_bias_leakyrelu(image, torch.rand(8)),
    attention=attention(queries, value=torch.rand(16, 2, 32), spatial_shapes=levels,
        level_start_index=torch.tensor([0, 12]), reference_points=torch.rand(2, 4, 2, 2)) + image.sum() * 0,
    points=ops.point_sample(image, torch.rand(2, 5, 2)),
)
for name, value in results.items():
    (grad,) = torch.autograd.grad(value.pow(2).sum(), image)
    print(name, f"{float(value.sum()):.4g} {float(grad.abs().sum()):.4g}")
with torch.no_grad():
    masked = ops.MaskedConv2d(8, 4, 3, padding=1)
    print(f"{float(masked(image[:1], torch.rand(1, 10, 12) - 0.5).sum()):.5f}")
"""


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv", "mmengine-needs")
def test_mmcv_ops_work_and_are_the_same_for_both_generations(projects: Projects) -> None:
    told = [projects.run("-c", CODE, generation) for generation in ("1", "2")]

    assert [done.returncode for done in told] == [0, 0], told[0].stderr + told[1].stderr
    (old, *first), (new, *second) = (done.stdout.splitlines() for done in told)
    assert (old, new) == ("1.7.2", "2.2.0")
    assert len(first) == 16 and first == second
    assert all("nan" not in line for line in first)


@pytest.mark.pins("mmcv-lite-2.2.0", "opencv")
def test_a_compiled_part_that_is_there_is_taken(projects: Projects) -> None:
    package = projects.cwd / "mmcv"
    package.symlink_to(projects.folders[0] / "mmcv", target_is_directory=True)
    (projects.cwd / "own").mkdir()
    (projects.cwd / "own/mmcv").mkdir()
    for entry in (projects.folders[0] / "mmcv").iterdir():
        (projects.cwd / "own/mmcv" / entry.name).symlink_to(entry)
    (projects.cwd / "own/mmcv/_ext.py").write_text("def __getattr__(name):\n    return f'compiled {name}'\n")
    code = (
        "import sys; sys.path.insert(0, 'own'); import etude.compat; etude.compat.install(); "
        "import mmcv._ext; print(mmcv._ext.nms)"
    )
    package.unlink()

    assert projects.run("-c", code).stdout == "compiled nms\n"
