"""MMClassification 0.25.0 on Étude: `etude train` gives the bits of the original engine."""

from __future__ import annotations

import pytest

from tests.projects.checkout import assert_as_recorded, digest, lay_out
from tests.projects.conftest import Projects

PINS = ("mmcls-0.25.0", "mmcv-lite-2.2.0", "mmengine-0.10.7", "opencv")
OPTIONS = ("--seed", "1", "--work-dir", "out")


@pytest.fixture
def checkout(projects: Projects) -> Projects:
    lay_out(projects.cwd, projects.folders[0])
    return projects


@pytest.mark.pins(*PINS)
def test_etude_train_gives_the_bits_of_the_original_also_when_resumed(checkout: Projects):
    done = checkout.etude("train", "folder.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("folder", checkout.cwd / "out")
    resumed = ("--seed", "1", "--work-dir", "resumed", "--resume-from", "out/epoch_1.pth")
    done = checkout.etude("train", "folder.py", *resumed)
    assert done.returncode == 0, done.stderr
    # Its workers persist: what they draw in the second epoch depends on what they drew in the first.
    assert digest(checkout.cwd / "resumed/epoch_2.pth") == digest(checkout.cwd / "out/epoch_2.pth")


@pytest.mark.pins(*PINS)
def test_the_script_of_the_project_gives_a_swin_the_bits_of_the_original(checkout: Projects):
    done = checkout.etude("exec", "tools/train.py", "swin.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("swin", checkout.cwd / "out")


MISTAKES = """\
_base_ = "configs/resnet/resnet18_8xb16_cifar10.py"
model = dict(backbone=dict(type="ResNett_CIFAR"), head=dict(num_clases=10, loss=dict(type="CrossEntropyLos")))
data = dict(train=dict(pipeline=[dict(type="RandomFlipp", flip_prob=0.5)]))
"""


@pytest.mark.pins("mmdet-2.28.2", "mmcls-0.25.0", "mmcv-lite-2.2.0")
def test_check_finds_mistakes_and_raises_no_false_alarm(projects: Projects):
    configs = {path.name.split("-")[0]: path / path.name.split("-")[0] / ".mim/configs" for path in projects.folders}
    (projects.cwd / "configs").symlink_to(configs["mmcls"])
    (projects.cwd / "wrong.py").write_text(MISTAKES)
    done = projects.etude("check", "wrong.py")
    assert done.returncode == 2
    found = done.stdout + done.stderr
    assert "wrong.py:2: no backbone is called 'ResNett_CIFAR'; did you mean 'ResNet_CIFAR'?" in found
    assert "wrong.py:2: LinearClsHead has no parameter 'num_clases'; did you mean 'num_classes'?" in found
    assert "wrong.py:2: no loss is called 'CrossEntropyLos'; did you mean 'CrossEntropyLoss'?" in found
    assert "wrong.py:3: no transform is called 'RandomFlipp'; did you mean 'RandomFlip'?" in found
    for right in (
        "deformable_detr/deformable_detr_r50_16x2_50e_coco.py",  # calls super(DETR, self).__init__
        "lad/lad_r50_paa_r101_fpn_coco_1x.py",  # a class that is one letter from another word
        "timm_example/retinanet_timm_tv_resnet50_fpn_1x_coco.py",  # imports mmcls, which has a FocalLoss, too
    ):
        done = projects.etude("check", str(configs["mmdet"] / right))
        assert done.returncode == 0 and "warning" not in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.pins("mmcls-0.25.0", "opencv")
def test_without_an_mmcv_on_disk_the_message_names_mmcv_lite(checkout: Projects):
    done = checkout.etude("train", "vit.py", *OPTIONS)
    assert done.returncode == 2
    assert "pip install mmcv-lite" in done.stderr
    assert not (checkout.cwd / "out").exists()


@pytest.mark.pins("mmcls-0.25.0", "mmcv-lite-2.2.0")
def test_a_broken_import_is_reported_with_its_own_file(checkout: Projects):
    done = checkout.etude("train", "vit.py", *OPTIONS)
    assert done.returncode == 2
    assert "No module named 'cv2'" in done.stderr and "pip install opencv-python-headless" in done.stderr
