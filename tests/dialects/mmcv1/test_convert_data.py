"""Converted configs read, measure and save what the original does: tracking, workflows, samplers, late evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from etude import api
from etude.build import Options
from etude.checkpoint.store import Store
from etude.cli import main
from tests.dialects.converting import prepare, require_same_bits, weights
from tests.dialects.mmcv1.test_convert import BASE, PARTS
from tests.dialects.mmcv1.test_convert_updates import BY_STEPS, require_same_after_resume

MORE = """

from mmcls.datasets import SAMPLERS
from mmcv.parallel import DataContainer
from mmtrack.datasets import DATASETS as FRAMES
from mmtrack.models import MODELS


@SAMPLERS.register_module(force=True)
class ThirdOfConvert(torch.utils.data.Sampler):
    def __init__(self, dataset, num_replicas, rank, shuffle, seed, times=1):
        self.dataset, self.seed, self.shuffle, self.times, self.epoch = dataset, seed, shuffle, times, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.times * (len(self.dataset) // 3)

    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=generator).tolist()
        return iter((order * self.times)[: len(self)] if self.shuffle else range(len(self)))


@DATASETS.register_module(force=True)
class NoisyAtBirth(ToyOfConvert):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        assert self.n < 99, 'these data are not there'
        torch.rand(1)


@FRAMES.register_module(force=True)
class FramesOfConvert(ToyOfConvert):
    CLASSES = ('ball', 'cat')

    def __getitem__(self, i):
        return {key: DataContainer(value, stack=True, pad_dims=None) for key, value in super().__getitem__(i).items()}

    def evaluate(self, results, metric='track', logger=None, **kwargs):
        return {metric: float(np.mean(results['boxes'])) + 0.01 * float(torch.rand(()))}


@MODELS.register_module(force=True)
class TrackerOfConvert(NetOfConvert):
    def forward(self, img, gt_label=None, return_loss=True, **kwargs):
        out = super().forward(img, gt_label, return_loss)
        return out if return_loss else dict(boxes=out[0], more=0)


@HOOKS.register_module(force=True)
class ModuleOfConvert(Hook):
    def after_train_epoch(self, runner):
        assert runner.model.module.CLASSES == ('ball', 'cat')
        with torch.no_grad():
            runner.model.module.fc2.bias.add_(0.1)
"""
TRACKING = (
    "model = dict(type='TrackerOfConvert', dropout=0.3)\n"
    "data = dict(train=dict(type='FramesOfConvert', noisy=True), val=dict(type='FramesOfConvert', n=5))\n"
    "evaluation = dict(interval=1, metric='track')\n"
)
NOISY = "data = dict(train=dict(noisy=True), val=dict(n=9, noisy=True))\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch, module="parts_of_convert", parts=PARTS + MORE, base=BASE)


def require_same_measured(folder: Path, changes: str, *names: str, count: int, logged: int | None = None) -> Any:
    """One result in weights, which are returned, and in what evaluations and validation epochs gave."""
    (folder / "old.py").write_text("_base_ = './base.py'\n" + changes)
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    old, new = weights("old.py", folder / "a"), weights("new.yaml", folder / "b")
    old = {name.removeprefix("module."): value for name, value in old.items()}
    assert list(old) == list(new) and all(torch.equal(old[name], new[name]) for name in old)
    lines = next((folder / "a").glob("*.log.json")).read_text().splitlines()
    theirs = _values([line for line in map(json.loads, lines) if line.get("mode") == "val"], names)
    ours = _values(_validations(folder / "b"), names)
    assert len(ours) == count and theirs == ours[len(ours) - (logged or count) :]
    return old


def _validations(folder: Path) -> list[dict[str, Any]]:
    records = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [record for record in records if record.get("split") == "val"]


def _values(records: list[dict[str, Any]], names: tuple[str, ...]) -> list[float]:
    return [round(record[name], 5) for record in records for name in names if name in record]


def test_a_tracker_is_trained_and_measured_by_its_own_project(folder: Path) -> None:
    hooks = (
        "custom_hooks = [dict(type='ModuleOfConvert'), dict(type='EMAHook', momentum=0.3, warm_up=2, priority=49)]\n"
    )
    require_same_measured(folder, TRACKING + hooks, "track", count=4)


def test_the_length_and_precision_of_a_tracker_are_its_own(folder: Path) -> None:
    more = "USE_MMDET = False\ntotal_epochs = 2\nfp16 = dict(loss_scale=8.)\nworkflow = [('train', 1), ('val', 1)]\n"
    average = "custom_hooks = [dict(type='ExpMomentumEMAHook', momentum=0.1, total_iter=5)]\n"
    require_same_measured(folder, TRACKING + more + average, "track", "loss", count=4)


def test_a_part_of_a_tracker_goes_by_its_runner(folder: Path) -> None:
    """Of a model that consists of parts the one that the flag asks for, evaluated before hooks of priority LOW."""
    model = TRACKING.replace(
        "dict(type='TrackerOfConvert', dropout=0.3)",
        "dict(_delete_=True, reid=dict(type='TrackerOfConvert', hidden=3))",
    )
    hooks = "custom_hooks = [dict(type='ModuleOfConvert', priority='LOW'), dict(type='EMAHook', warm_up=2, priority='BELOW_NORMAL')]\n"
    require_same_measured(folder, model + hooks + "TRAIN_REID = True\ntotal_epochs = 9\n", "track", count=4)


def test_a_tracker_goes_on_exactly(folder: Path) -> None:
    lasting = TRACKING.replace("data = dict(", "data = dict(workers_per_gpu=1, persistent_workers=True, ")
    require_same_after_resume(folder, lasting, step=7)


@pytest.mark.parametrize(
    ("changes", "count", "logged"),
    [
        ("runner = dict(max_epochs=5)\nevaluation = dict(start=2, interval=2)\n", 2, 2),
        ("evaluation = dict(start=0, interval=1)\n", 5, 4),  # the first is wiped from mmcv's log before it is written
        (BY_STEPS + "evaluation = dict(start=4, interval=3)\n", 3, 3),
    ],
    ids=["late", "before training", "by iterations"],
)
def test_evaluations_start_where_the_original_has_them(folder: Path, changes: str, count: int, logged: int) -> None:
    require_same_measured(folder, changes, "accuracy", count=count, logged=logged)


def test_an_evaluation_before_training_is_not_repeated_by_a_resume(folder: Path) -> None:
    best = "evaluation = dict(start=0, interval=1, save_best='accuracy', rule='less')\n"
    require_same_after_resume(folder, best + "data = dict(val=dict(noisy=True))\n", step=5)
    assert (folder / "b" / "checkpoints" / "step-000000000").exists()


def test_a_few_batches_by_heart_need_no_evaluation(folder: Path) -> None:
    policy = "lr_config = dict(_delete_=True, policy='CosineAnnealing', min_lr=0.01)\n"
    (folder / "old.py").write_text("_base_ = './base.py'\nevaluation = dict(start=1)\n" + policy)
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    assert main(["train", "new.yaml", "--overfit", "2", "-q"]) == 0


def test_validation_first_trains_on_the_other_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = "workflow = [('val', 1), ('train', 2)]\nrunner = dict(max_epochs=3)\nevaluation = dict(interval=9)\n"
    require_same_measured(folder, NOISY + flow, "loss", count=2)
    assert "trains on data.val" in capsys.readouterr().err


@pytest.mark.parametrize("step", [2, 8], ids=["in the first pass", "in the second"])
def test_validation_between_iterations_comes_along(folder: Path, step: int) -> None:
    flow = "workflow = [('train', 3), ('val', 2)]\nmodel = dict(dropout=0.4)\n" + NOISY
    require_same_after_resume(folder, flow + BY_STEPS, step=step)


@pytest.mark.parametrize(
    "changes",
    ["sampler = dict(type='ThirdOfConvert', times=5)\n", "data = dict(train_dataloader=dict(sampler_cfg=dict(type='ThirdOfConvert')))\n" + BY_STEPS],
    ids=["by epochs, with another length", "by iterations"],
)  # fmt: skip
def test_samplers_come_along(folder: Path, changes: str) -> None:
    require_same_bits(folder, changes)


def test_several_data_sets_are_joined(folder: Path) -> None:
    two = "[dict(type='ToyOfConvert', n=6), dict(type='ToyOfConvert', n=7, offset=3)]"
    require_same_bits(folder, f"data = dict(train={two})\n")


def test_test_data_are_opened_by_a_test_alone(folder: Path) -> None:
    """Training draws and opens nothing of them; a test measures what one of the old config does."""
    (folder / "away.py").write_text("_base_ = './base.py'\ndata = dict(test=dict(type='NoisyAtBirth', n=99))\n")
    assert main(["convert", "away.py", "-o", "away.yaml"]) == 0
    weights("away.yaml", folder / "away")
    test = "data = dict(test=dict(type='NoisyAtBirth', n=7), test_dataloader=dict(samples_per_gpu=3))\n"
    require_same_bits(folder, test + "evaluation = dict(metric='acc')\n")
    for config in ("old.py", "new.yaml"):
        assert main(["test", config, "a/epoch_4.pth", "-q", "--out", f"{config}.json"]) == 0
    old, new = ((folder / f"{config}.json").read_text() for config in ("old.py", "new.yaml"))
    assert old == new and "acc" in new


@pytest.mark.parametrize("priority", ["NORMAL", "ABOVE_NORMAL", "VERY_LOW"])
def test_averages_are_measured_and_saved_as_in_the_original(folder: Path, priority: str) -> None:
    """The file of epoch 2 has the raw weights as the model unless the average acts before the CheckpointHook."""
    hook = f"custom_hooks = [dict(type='EMAHook', momentum=0.3, warm_up=2, priority='{priority}')]\n"
    flow = "workflow = [('train', 1), ('val', 1)]\n"
    last = require_same_measured(folder, hook + flow, "accuracy", "loss", count=6)
    theirs = torch.load(folder / "a" / "epoch_2.pth", weights_only=False)["state_dict"]
    path = folder / "b" / "checkpoints" / "step-000000010"
    ours = Store(str(path.parent), write=False).load(str(path)).state["model"]
    assert list(ours) == list(theirs) and all(torch.equal(ours[name], theirs[name]) for name in ours)
    resumed = api.train("new.yaml", options=Options(folder=folder / "c", resume=str(path), quiet=True))
    assert all(torch.equal(value, last[name]) for name, value in resumed.model.state_dict().items())
    whole, rest = (_validations(folder / name) for name in "bc")
    assert rest == whole[-len(rest) :] and len(rest) == 4


def test_an_average_begins_with_the_weights_that_are_loaded(folder: Path) -> None:
    hook = "custom_hooks = [dict(type='EMAHook', momentum=0.3, warm_up=2, priority='ABOVE_NORMAL')]\n"
    (folder / "first.py").write_text("_base_ = './base.py'\nseed = 4\nrunner = dict(max_epochs=1)\n")
    weights("first.py", folder / "first")
    require_same_bits(folder, hook + "load_from = 'first/epoch_1.pth'\n")


def test_the_best_holds_the_averages_that_were_measured(folder: Path) -> None:
    hook = "custom_hooks = [dict(type='EMAHook', momentum=0.3, warm_up=2)]\ncheckpoint_config = dict(interval=9, save_last=False)\n"
    require_same_measured(folder, hook + "evaluation = dict(save_best='auto', rule='less')\n", "accuracy", count=2)
    theirs = torch.load(next((folder / "a").glob("best_*.pth")), weights_only=False)["state_dict"]
    store = Store(str(folder / "b" / "checkpoints"), write=False)
    found = [store.load(entry.name).state["model"] for entry in store.entries()]
    assert any(all(torch.equal(state[name], theirs[name]) for name in theirs) for state in found)
