"""LiBai's own image configs with the real flowvision: mixup, cutmix, random erasing and RandAugment in front of a model."""

from __future__ import annotations

import json

import pytest
import torch
from PIL import Image

from tests import sampling
from tests.projects import fetch
from tests.projects.test_libai import SCRIPT

pytestmark = pytest.mark.pins("flowvision-0.1.0", "libai-0.1.1", "libai-needs")

TINY = {
    "vit_imagenet": "model.embed_dim=16 model.depth=2 model.num_heads=2 model.patch_size=56",
    "swin_imagenet": "model.embed_dim=16 model.depths=[1,1] model.num_heads=[2,2] model.patch_size=8",
}
OPTIONS = """graph.enabled=false dataloader.train.num_workers=0 dataloader.test.0.num_workers=0
dataloader.train.dataset.0.root=data dataloader.test.0.dataset.root=data
train.train_micro_batch_size=4 train.test_micro_batch_size=4 train.train_epoch=0 train.train_iter=2 train.log_period=1
train.evaluation.eval_period=2 train.output_dir=out"""
#: Its last line is that of LiBai's own tools/train.sh.
SHELL = "python3 -m oneflow.distributed.launch --nproc_per_node $3 --nnodes 1 $1 --config-file $2 ${@:4}\n"


@pytest.fixture
def words(projects, request):
    """The config's path and overrides for a tiny model and a tiny ImageNet beside it."""
    for split in ("train", "val"):
        for label in ("cat", "dog"):
            folder = projects.cwd / "data" / split / label
            folder.mkdir(parents=True)
            for number in range(4):
                Image.effect_noise((40, 40), 50 + number).convert("RGB").save(folder / f"{number}.png")
    configs = fetch.folder("libai-0.1.1") / "libai/config/configs"
    return [str(configs / f"{request.param}.py"), *OPTIONS.split(), *TINY[request.param].split()]


def losses(folder):
    lines = (folder / "out/metrics.json").read_text().splitlines()
    return [json.loads(line)["total_loss"] for line in lines]


@pytest.mark.parametrize("words", TINY if sampling.ALL else ["vit_imagenet"], indirect=True)
def test_an_image_config_with_mixup_trains_and_is_evaluated(projects, words):
    checked = projects.etude("check", *words)
    assert checked.returncode == 0, checked.stdout
    trained = projects.etude("train", *words)
    assert trained.returncode == 0, trained.stderr
    assert len(losses(projects.cwd)) == 2
    assert "copypaste: Acc@1=" in (projects.cwd / "out/log.txt").read_text()
    state = torch.load(projects.cwd / "out/model_final/model")
    assert all(value.isfinite().all() for value in state.values())


@pytest.mark.parametrize("words", ["vit_imagenet"], indirect=True)
def test_the_shell_script_of_libai_starts_processes(projects, words):
    (projects.cwd / "train_net.py").write_text(SCRIPT)
    (projects.cwd / "train.sh").write_text(SHELL)
    done = projects.etude("exec", "train.sh", "train_net.py", words[0], "2", *words[1:])
    assert done.returncode == 0, done.stderr
    assert len(losses(projects.cwd)) == 2
    assert "World size: 2" in (projects.cwd / "out/log.txt").read_text()
