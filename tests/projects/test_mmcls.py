"""MMClassification 0.25.0 on Étude: `etude train` gives the bits of the original engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.projects.checkout import THREE_WAYS, assert_as_recorded, digest, lay_out
from tests.projects.conftest import Projects

PINS = ("mmcls-0.25.0", "mmcv-lite-2.2.0", "mmengine-0.10.7", "opencv")
OPTIONS = ("--seed", "1", "--work-dir", "out")


@pytest.fixture
def checkout(projects: Projects) -> Projects:
    lay_out(projects.cwd, projects.folders[0])
    return projects


@pytest.fixture
def ready(checkout: Projects) -> Projects:
    """The same, where the slow imports are done."""
    return replace(checkout, imports="mmcls.apis, mmcls.datasets, mmcls.models")


@pytest.mark.pins(*PINS)
def test_etude_train_gives_the_bits_of_the_original_also_when_resumed(checkout: Projects, ready: Projects):
    done = checkout.etude("train", "folder.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("folder", checkout.cwd / "out")
    resumed = ("--seed", "1", "--work-dir", "resumed", "--resume-from", "out/epoch_1.pth")
    done = ready.etude("train", "folder.py", *resumed)
    assert done.returncode == 0, done.stderr
    # Its workers persist: what they draw in the second epoch depends on what they drew in the first.
    assert digest(checkout.cwd / "resumed/epoch_2.pth") == digest(checkout.cwd / "out/epoch_2.pth")


LIMITED = """\
from etude.cli import main
words = ["train", "folder.py", "--seed", "1", "--limit-batches", "1", "-q"]
assert main([*words, "--work-dir", "out"]) == 0
assert main([*words, "--work-dir", "resumed", "--resume-from", "out/epoch_1.pth"]) == 0
"""


@pytest.mark.pins(*PINS)
def test_workers_draw_no_batch_that_a_limited_epoch_leaves_out(ready: Projects):
    done = ready.run("-c", LIMITED)
    assert done.returncode == 0, done.stderr
    assert digest(ready.cwd / "resumed/epoch_2.pth") == digest(ready.cwd / "out/epoch_2.pth")


@pytest.mark.pins(*PINS)
def test_the_script_of_the_project_gives_a_swin_the_bits_of_the_original(ready: Projects):
    done = ready.etude("exec", "tools/train.py", "swin.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("swin", ready.cwd / "out")


@pytest.mark.thorough  # the processes import the project anew
@pytest.mark.skipif(torch.cuda.is_available(), reason="MMClassification trains in several processes on GPUs")
@pytest.mark.pins(*PINS)
def test_several_processes_on_cpus_which_the_project_refuses_are_told_so(checkout: Projects):
    done = checkout.etude("train", "resnet.py", "--nproc", "2", *OPTIONS)
    assert done.returncode == 3
    (last,) = [line for line in done.stderr.splitlines() if line.startswith("etude: error:")]
    assert (
        "mmcls/utils/distribution.py:78: " in last and 'Unavailable device "cpu"; this code trains in several ' in last
    )
    assert last.endswith("on GPUs alone: on CPUs train in one (no --nproc, no --launcher)")


OWN_SCRIPT = THREE_WAYS.format(
    imports="from mmcls.apis import set_random_seed, train_model\n"
    "from mmcls.datasets import build_dataset\n"
    "from mmcls.models import build_classifier",
    lines="    model = build_classifier(cfg.model)\n"
    "    model.init_weights()\n"
    "    train_model(model, build_dataset(cfg.data.train), cfg, validate=True, device='cpu')",
)


@pytest.mark.pins(*PINS)
def test_etude_train_exec_and_a_script_of_ones_own_give_the_bits_of_the_original(ready: Projects):
    (ready.cwd / "own.py").write_text(OWN_SCRIPT)
    done = ready.run("own.py", "resnet.py", "tools/train.py")
    assert done.returncode == 0, done.stderr
    for way in ("train", "exec", "own"):
        assert_as_recorded("resnet", ready.cwd / way)


@pytest.mark.thorough  # the recorded cases have LAMB
@pytest.mark.pins(*PINS)
def test_lamb_and_mixed_pictures_give_the_bits_of_the_original(ready: Projects):
    done = ready.etude("train", "rsb.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("rsb", ready.cwd / "out")


@pytest.mark.thorough  # tests/data has the same hook on a small loader
@pytest.mark.pins(*PINS)
def test_workers_go_on_behind_a_hook_that_goes_over_the_training_data(ready: Projects):
    done = ready.etude("train", "precise.py", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert_as_recorded("precise", ready.cwd / "out")


MISTAKES = """\
_base_ = "configs/resnet/resnet18_8xb16_cifar10.py"
model = dict(backbone=dict(type="ResNett_CIFAR"), head=dict(num_clases=10, loss=dict()), neck=dict(type="GlobalAveragePoolin"))
data = dict(train=dict(pipeline=[dict(type="RandomFlipp", flip_prob=0.5), dict(type="RandomCrop", sizee=32)]))
model["head"]["loss"].update(type="LabelSmoothLoss", label_smoth_val=0.1)
model["train_cfg"] = dict(
    augments=[
        dict(type="BatchMixupp", alpha=0.2, num_classes=10, prob=0.5),
        dict(type="BatchCutMix", alphaa=1.0, num_classes=10, prob=0.5),
    ]
)
data["train"]["pipeline"].append(dict(type="RandAugment", policies=[dict(type="Solarizee")], num_policies=1))
"""


@pytest.mark.pins("mmdet-2.28.2", "mmcls-0.25.0", "mmcv-lite-2.2.0")
def test_check_finds_mistakes_and_raises_no_false_alarm(projects: Projects):
    configs = {path.name.split("-")[0]: path / path.name.split("-")[0] / ".mim/configs" for path in projects.folders}
    (projects.cwd / "configs").symlink_to(configs["mmcls"])
    (projects.cwd / "wrong.py").write_text(MISTAKES)
    done = projects.etude("check", "wrong.py")
    assert done.returncode == 2
    found = done.stdout + done.stderr
    for told in (
        "wrong.py:2: warning: no part of a model is called 'ResNett_CIFAR'; did you mean 'ResNet_CIFAR'?",
        "wrong.py:2: warning: LinearClsHead has no parameter 'num_clases'; did you mean 'num_classes'?",
        "wrong.py:2: warning: no part of a model is called 'GlobalAveragePoolin'; did you mean 'GlobalAveragePooling'?",
        "wrong.py:3: no transform is called 'RandomFlipp'; did you mean 'RandomFlip'?",
        "wrong.py:3: RandomCrop has no parameter 'sizee'; did you mean 'size'?",
        "wrong.py:3: RandAugment needs the parameter 'magnitude_level'",
        "LabelSmoothLoss has no parameter 'label_smoth_val'; did you mean 'label_smooth_val'?",
        "wrong.py:7: warning: no augment is called 'BatchMixupp'; did you mean 'BatchMixup'?",
        "wrong.py:8: warning: BatchCutMix has no parameter 'alphaa'; did you mean 'alpha'?",
    ):
        assert told in found
    for right in (
        "deformable_detr/deformable_detr_r50_16x2_50e_coco.py",  # calls super(DETR, self).__init__
        "lad/lad_r50_paa_r101_fpn_coco_1x.py",  # a class that is one letter from another word
        "fpg/retinanet_r50_fpg_crop640_50e_coco.py",  # words of its own that are one letter from a layer's
        "timm_example/retinanet_timm_tv_resnet50_fpn_1x_coco.py",  # imports mmcls, which has a FocalLoss, too
    ):
        done = projects.etude("check", str(configs["mmdet"] / right))
        assert done.returncode == 0 and "warning" not in done.stdout + done.stderr, done.stdout + done.stderr


LAYERS = """\
_base_ = "configs/detr/detr_r50_8x2_150e_coco.py"
encoder = dict(
    transformerlayers=dict(
        feedforward_chanels=1024,
        attn_cfgs=[dict(type="MultiheadAttention", embed_dims=256, num_head=8)],
    )
)
decoder = dict(num_layer=3, transformerlayers=dict(type="DetrTransformerDecoderLayr"))
model = dict(bbox_head=dict(transformer=dict(encoder=encoder, decoder=decoder)))
"""


@pytest.mark.pins("mmdet-2.28.2", "mmcv-lite-2.2.0")
def test_check_finds_mistakes_in_the_layers_of_a_transformer(projects: Projects):
    """The base classes are mmcv's; the first one passes over words that it does not know."""
    (projects.cwd / "configs").symlink_to(projects.folders[0] / "mmdet/.mim/configs")
    (projects.cwd / "wrong.py").write_text(LAYERS)
    done = projects.etude("check", "wrong.py")
    assert [line for line in done.stdout.splitlines() if line.startswith("wrong.py:")][:-1] == [
        "wrong.py:5: warning: MultiheadAttention has no parameter 'num_head'; did you mean 'num_heads'?",
        "wrong.py:8: warning: DetrTransformerDecoder has no parameter 'num_layer'; did you mean 'num_layers'?",
        "wrong.py:8: warning: no transformer layer is called 'DetrTransformerDecoderLayr'; "
        "did you mean 'DetrTransformerDecoderLayer'?",
    ]


@pytest.mark.pins("mmcls-0.25.0", "mmcv-lite-2.2.0", "opencv")
def test_a_model_of_the_zoo_comes_from_the_cache_and_the_message_says_where_to_put_it(checkout: Projects):
    zoo = '_base_ = "resnet.py"\nmodel = dict(backbone=dict(init_cfg=dict(type="Pretrained", checkpoint="{}")))\n'
    (checkout.cwd / "zoo.py").write_text(zoo.format("torchvision://resnet18"))
    cached = replace(checkout, env={"TORCH_HOME": str(checkout.cwd / "home")})
    done = cached.etude("train", "zoo.py", *OPTIONS)
    assert done.returncode == 2
    assert f"put the file at {checkout.cwd}/home/hub/checkpoints/resnet18.pth" in done.stderr


@pytest.mark.pins("mmcls-0.25.0", "mmdet-2.28.2")
def test_a_config_of_a_project_that_is_not_installed_is_reported_as_one(projects: Projects):
    mmcls, mmdet = projects.folders
    alone = Projects((mmcls,), projects.cwd)
    done = alone.etude("check", str(mmdet / "mmdet/.mim/configs/retinanet/retinanet_r18_fpn_1x_coco.py"))
    missing = "warning: no model is called 'RetinaNet'; install the project that the config is for"
    assert f"{missing}; MMDetection: pip install --no-deps mmdet==2.28.2" in done.stdout
    nothing = Projects((), projects.cwd)
    done = nothing.etude("check", str(mmdet / "mmdet/.mim/configs/retinanet/retinanet_r18_fpn_1x_coco.py"))
    assert f"{missing}; MMClassification: pip install --no-deps mmcls==0.25.0" in done.stdout


@pytest.mark.pins("mmcls-0.25.0")
def test_a_misspelt_model_of_an_installed_project_is_no_other_project(projects: Projects):
    (projects.cwd / "own.py").write_text(
        "model = dict(type='ImageClasifier', backbone=dict(type='ResNet', depth=18), head=dict(type='ClsHead'))\n"
        "data = dict(samples_per_gpu=2, train=dict(type='CustomDataset', data_prefix='data', pipeline=[]))\n"
        "optimizer = dict(type='SGD', lr=0.1)\n"
        "optimizer_config = dict()\n"
        "lr_config = dict(policy='step', step=[1])\n"
        "runner = dict(type='EpochBasedRunner', max_epochs=1)\n"
    )
    done = projects.etude("check", "own.py")
    assert (
        "own.py:1: warning: no model is called 'ImageClasifier'; did you mean 'ImageClassifier' of MMC" in done.stdout
    )


@pytest.mark.pins("mmcls-0.25.0", "opencv")
def test_without_an_mmcv_on_disk_the_message_names_mmcv_lite(checkout: Projects):
    done = checkout.etude("train", "vit.py", *OPTIONS)
    assert done.returncode == 2
    assert "MMClassification cannot be imported" in done.stderr and "pip install mmcv-lite" in done.stderr
    assert not (checkout.cwd / "out").exists()


@pytest.mark.pins("mmcls-0.25.0", "mmcv-lite-2.2.0")
def test_a_broken_import_is_reported_with_its_own_file(checkout: Projects):
    done = checkout.etude("train", "vit.py", *OPTIONS)
    assert done.returncode == 2
    assert "No module named 'cv2'" in done.stderr and "pip install opencv-python-headless" in done.stderr
