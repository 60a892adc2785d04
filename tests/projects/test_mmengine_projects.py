"""MMPretrain and MMSelfSup, untouched, train on Étude's engine and end in the bits of the original engine."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import sampling
from tests.projects import mmengine_cases as cases
from tests.projects.checkout import machine
from tests.projects.conftest import Projects, fetched

SCRIPT = """\
import sys, etude.compat
etude.compat.install()
from mmengine.config import Config
from mmengine.runner import Runner
cfg = Config.fromfile(sys.argv[1])
cfg.work_dir = sys.argv[2]
Runner.from_cfg(cfg).train()
"""


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(cases.RECORDED.read_text())


def assert_as_recorded(found: dict[str, Any], recorded: Any, name: str) -> None:
    if name in recorded.get(machine(), {}):
        assert found == recorded[machine()][name]
    else:  # other kernels round differently
        other = next(one[name] for one in recorded.values() if name in one)
        assert found["losses"] == pytest.approx(other["losses"], rel=0.05, abs=0.02)


def prepared(folder: Path, name: str, *, beside: bool = False, ready: bool = False) -> Projects:
    """The case ``name`` in ``folder``; ``beside`` puts the real mmengine on the path, too; ``ready``: imports are done."""
    cases.write(folder)
    engine = fetched(cases.ENGINE) if beside else ()
    package = "mmpretrain" if name.startswith("pretrain") else "mmselfsup"
    imports = f"mmengine, {package}.datasets, {package}.models" if ready else ""
    return Projects((folder, *fetched(cases.pins(name)), *engine), folder, imports=imports)


#: What differs most: schedules, optimizers, hooks that change a run. `make test-all` trains all of them. The tests below
#: train two more, the one with workers and the one that masks.
SAMPLE = ["pretrain_recipe", "pretrain_vit", "selfsup_swav"]
#: These do the imports themselves.
FROM_THE_START = ("pretrain_vit", "selfsup_simclr")


@pytest.mark.parametrize("name", cases.names() if sampling.ALL else SAMPLE)
def test_etude_train_ends_in_the_bits_of_the_original(name: str, recorded: Any, tmp_path: Path) -> None:
    beside, ready = name != "pretrain_vit", name not in FROM_THE_START  # the others draw, or infer, with the original
    projects = prepared(tmp_path, name, beside=beside, ready=ready)
    run = projects.etude("train", f"configs/{name}.py", "--work-dir", "out")
    assert run.returncode == 0, run.stderr
    assert_as_recorded(cases.outcome(tmp_path / "out"), recorded, name)


@pytest.mark.parametrize("name", ["pretrain_resnet18_cifar", "selfsup_mae"])
def test_the_projects_own_script_ends_in_the_same_bits(name: str, recorded: Any, tmp_path: Path) -> None:
    projects = prepared(tmp_path, name, beside=True, ready=True)
    script = cases.train_script(projects.folders[1:], name)
    run = projects.etude("exec", script, f"configs/{name}.py", "--work-dir", "out")
    assert run.returncode == 0, run.stderr
    assert_as_recorded(cases.outcome(tmp_path / "out"), recorded, name)


def test_a_script_of_ones_own_ends_in_the_same_bits(recorded: Any, tmp_path: Path) -> None:
    projects = prepared(tmp_path, "selfsup_mae", beside=True, ready=True)
    (tmp_path / "mine.py").write_text(SCRIPT)
    run = projects.run("mine.py", "configs/selfsup_mae.py", "out")
    assert run.returncode == 0, run.stderr
    assert_as_recorded(cases.outcome(tmp_path / "out"), recorded, "selfsup_mae")


def test_a_killed_run_goes_on_to_the_same_bits_and_is_measured(recorded: Any, tmp_path: Path) -> None:
    """Persistent workers, augmentation and validation, killed after the first epoch's checkpoint."""
    name = "pretrain_resnet18_cifar"
    projects = prepared(tmp_path, name, beside=True, ready=True)
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "from mmengine.hooks import Hook\n"
        "from mmpretrain.registry import HOOKS\n"
        "@HOOKS.register_module()\n"
        "class Die(Hook):\n"
        "    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):\n"
        "        if runner.iter == 3 and 'DIE' in os.environ: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "configs" / "dies.py").write_text(
        f"_base_ = './{name}.py'\n"
        "custom_imports = dict(imports=['tiny_cifar', 'deadly'])\n"
        "custom_hooks = [dict(type='Die')]\n"
    )
    deadly = replace(projects, env={"DIE": "1"})
    first = deadly.etude("train", "configs/dies.py", "--work-dir", "out")
    assert first.returncode == -signal.SIGKILL, first.stderr
    run = projects.etude("train", "configs/dies.py", "--work-dir", "out", "--resume")
    assert run.returncode == 0, run.stderr
    assert_as_recorded(cases.outcome(tmp_path / "out"), recorded, name)
    test = projects.etude("test", f"configs/{name}.py", "out/epoch_2.pth")
    assert test.returncode == 0, test.stderr
    assert f"{cases.outcome(tmp_path / 'out')['accuracies'][-1]:g}" in test.stdout


@pytest.mark.parametrize("name", cases.names())
def test_check_is_content_with_the_configs(name: str, tmp_path: Path) -> None:
    projects = prepared(tmp_path, name)
    run = projects.etude("check", f"configs/{name}.py")
    assert run.returncode == 0, run.stdout + run.stderr


CHECKING = """\
import glob, json, os, sys
from etude import dialects
from etude.dialects import ownership
found = {}
for package, step in (("mmpretrain", int(sys.argv[1])), ("mmselfsup", int(sys.argv[1]))):
    root = ownership.original(package) + "/.mim/configs/"
    files = [file for file in sorted(glob.glob(root + "**/*.py", recursive=True)) if "/_base_/" not in file]
    for file in files[::step]:
        try:
            dialect, tree = dialects.read(file)
        except Exception as error:
            found[file[len(root):]] = ["does not load: " + str(error)]
            continue
        errors = [one.message for one in dialect.check(tree) if one.severity == "error"]
        found[file[len(root):]] = [dialect.name + ": " + text for text in errors]
print(json.dumps([found, "torch" in sys.modules, package in sys.modules]))
"""
#: Mistakes of the releases themselves, at which the original stops, too: keys that the runner wants together, arguments
#: that the class does not take, bases that are not there or of the other style.
UPSTREAM = (
    "belong together", "'with_sobel'", "'top_k'", "'max_txt_len'", "which says what `by_epoch` would",
    "which is not installed", "pure-Python style", "'test_pipeline'", "mmcls.ToNumpy needs the parameter 'keys'",
    "RandomCrop has no parameter 'size'", "has no parameter 'to_rgb'",
)  # fmt: skip


def test_check_raises_no_false_alarm_on_the_projects_own_configs(tmp_path: Path) -> None:
    """A sample of their 669 configs; all with ``make test-all``."""
    folders = fetched(("mmpretrain-1.2.0", *cases.SELFSUP))
    step = "1" if sampling.ALL else "48"
    run = Projects(folders, tmp_path).run("-c", CHECKING, step, fresh=True)
    assert run.returncode == 0, run.stderr
    found, *imported = json.loads(run.stdout)
    assert imported == [False, False]
    alarms = [(file, text) for file, texts in found.items() for text in texts if not _is_upstream(text)]
    assert len(found) > 600 // int(step) and alarms == []


def _is_upstream(text: str) -> bool:
    return any(mistake in text for mistake in UPSTREAM)


def test_check_finds_mistakes_by_the_sources_of_the_project(tmp_path: Path) -> None:
    projects = prepared(tmp_path, "pretrain_resnet18_cifar")
    (tmp_path / "configs" / "wrong.py").write_text(
        "_base_ = './pretrain_resnet18_cifar.py'\n"
        "model = dict(\n"
        "    backbone=dict(type='ResNet_CIFARR'),\n"
        "    head=dict(num_clases=10))\n"
        "train_dataloader = dict(dataset=dict(pipeline=[dict(type='RandomCropp', crop_size=32)]))\n"
        "val_dataloader = dict(dataset=dict(pipeline=[dict(type='RandomFlip', prb=0.5)]))  # a class of mmcv\n"
    )
    run = projects.etude("check", "configs/wrong.py")
    assert run.returncode == 2, run.stdout + run.stderr
    assert "wrong.py:3: warning: no model is called 'ResNet_CIFARR'; did you mean 'ResNet_CIFAR'?" in run.stdout
    assert "wrong.py:4: warning: LinearClsHead has no parameter 'num_clases'; did you mean 'num_classes'?" in run.stdout
    assert "wrong.py:5: no transform is called 'RandomCropp'; did you mean 'RandomCrop'?" in run.stdout
    assert "wrong.py:6: RandomFlip has no parameter 'prb'; did you mean 'prob'?" in run.stdout
    listed = projects.etude("list", "datasets", "--config", "configs/pretrain_resnet18_cifar.py").stdout
    assert "mmpretrain.datasets.cifar.CIFAR100" in listed and "tiny_cifar.TinyCIFAR10" in listed


@pytest.mark.parametrize("mmcv", [(), ("mmcv-1.7.2",)])
@pytest.mark.parametrize("verb", ["check", "train"])
def test_without_an_mmcv_2_on_disk_the_message_names_mmcv_lite(
    verb: str, mmcv: tuple[str, ...], tmp_path: Path
) -> None:
    cases.write(tmp_path)
    folders = fetched([*mmcv, *(name for name in cases.PRETRAIN if not name.startswith("mmcv"))])
    run = Projects((tmp_path, *folders), tmp_path).etude(verb, "configs/pretrain_vit.py")
    assert run.returncode == 2, run.stderr
    said = run.stdout + run.stderr
    assert "default_runtime.py:2: mmpretrain needs mmcv" in said and "pip install mmcv-lite" in said
    assert ("mmcv 1.7.2" if mmcv else "none is on disk") in said


def test_a_config_of_a_project_that_is_not_installed_is_reported_as_one(tmp_path: Path) -> None:
    projects = prepared(tmp_path, "pretrain_vit")
    (tmp_path / "configs" / "other.py").write_text(
        "_base_ = './pretrain_vit.py'\ndefault_scope = 'mmselfsup'\nmodel = dict(_delete_=True, type='SimCLR')\n"
    )
    run = projects.etude("train", "configs/other.py", "--work-dir", "out")
    assert run.returncode == 2
    assert "mmselfsup, which the config is for, is not installed: pip install mmselfsup" in run.stderr


CLASHING = """\
from etude_openmm.mmengine.projects import with_project
imported = {("MODELS", "BEiT"): "mmcls.models.backbones.beit:BEiT", ("MODELS", "MAE"): "mine:MAE"}
found = with_project(imported, {"default_scope": "mmselfsup"}, [])
print(found["MODELS", "BEiT"], found["MODELS", "MAE"])
"""


def test_a_part_of_the_projects_own_counts_where_another_project_was_imported(tmp_path: Path) -> None:
    run = Projects(fetched(cases.SELFSUP), tmp_path).run("-c", CLASHING)
    assert run.stdout.split() == ["mmselfsup.models.algorithms.beit:BEiT", "mine:MAE"], run.stderr


def test_check_finds_mistakes_in_names_with_a_scope(tmp_path: Path) -> None:
    projects = prepared(tmp_path, "selfsup_mae")
    (tmp_path / "configs" / "wrong.py").write_text(
        "_base_ = './selfsup_mae.py'\n"
        "model = dict(\n"
        "    backbone=dict(init_cfg=dict(type='Pretrained', chekpoint='x.pth')),\n"
        "    head=dict(loss=dict(_delete_=True, type='mmcls.CrossEntropyLos')))\n"
        "steps = [dict(type='mmdet.RandomCrop', crop_type='relative_range')]  # mmdet is not installed\n"
        "train_dataloader = dict(dataset=dict(_delete_=True, type='mmcls.ImageNt', data_root='data', pipeline=steps))\n"
        "val_evaluator = dict(type='mmcls.Accuracy', topkk=1)\n"
    )
    run = projects.etude("check", "configs/wrong.py")
    assert run.returncode == 2, run.stdout + run.stderr
    assert "wrong.py:3: warning: Pretrained has no parameter 'chekpoint'; did you mean 'checkpoint'?" in run.stdout
    assert "wrong.py:6: no dataset is called 'mmcls.ImageNt'; did you mean 'mmcls.ImageNet'?" in run.stdout
    assert "wrong.py:7: mmcls.Accuracy has no parameter 'topkk'; did you mean 'topk'?" in run.stdout
    assert "RandomCrop has no parameter" not in run.stdout


BESIDE_TRAINING = """\
import etude.compat
etude.compat.install()
import torch
from mmengine.analysis import FlopAnalyzer, get_model_complexity_info
from mmengine.config import Config
from mmengine.hub import get_config
from mmengine.infer import BaseInferencer
from mmengine.registry import OPTIM_WRAPPERS
from mmengine.runner import Runner
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
print(get_model_complexity_info(net, (3, 8, 8))["flops"], FlopAnalyzer.__module__, BaseInferencer.__module__)
print(isinstance(get_config("mmpretrain::resnet/resnet18_8xb16_cifar10.py"), Config), Runner.__module__)
print(OPTIM_WRAPPERS.get("DeepSpeedOptimWrapper").__module__)
from mmengine.model import BaseModel, BaseTTAModel
from mmengine.runner import load_state_dict
class Net(BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self): ...
class Merged(BaseTTAModel):
    def merge_preds(self): ...
merged = Merged(Net())
load_state_dict(merged, {"layer.weight": torch.full((1, 1), 7.0), "layer.bias": torch.zeros(1)}, strict=True)
print(merged.module.layer.weight.item())
"""


def test_what_is_no_part_of_training_comes_from_the_installed_mmengine(tmp_path: Path) -> None:
    folders = fetched((*cases.PRETRAIN, *cases.ENGINE))
    run = Projects(folders, tmp_path).run("-c", BESIDE_TRAINING)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "3888 mmengine.analysis.complexity_analysis mmengine.infer.infer",
        "True etude_openmm.mmengine.live.runner.runner",
        "mmengine._strategy.deepspeed",
        "7.0",  # a checkpoint of a model is loaded into the one that merges what it predicts
    ]


HUES = """\
import etude.compat
etude.compat.install()
import {first}
import cv2, mmcv
import numpy as np
pixels = np.random.default_rng(0).integers(0, 255, (4, 4, 3), dtype=np.uint8)
hue, *rest = cv2.split(cv2.cvtColor(pixels, cv2.COLOR_BGR2HSV_FULL))
wanted = cv2.cvtColor(cv2.merge([hue - np.uint8(25), *rest]), cv2.COLOR_HSV2BGR_FULL)
assert (mmcv.adjust_hue(pixels, -0.1) == wanted).all()
assert mmcv.adjust_hue(pixels, -0.1, backend="pillow").shape == pixels.shape
print(np.in1d([[1, 2]], [2]).tolist(), mmcv.image.photometric.__file__)
"""


@pytest.mark.parametrize("first", ["mmcv", "mmengine"])
def test_hues_are_shifted_backwards_with_any_numpy(first: str, tmp_path: Path) -> None:
    """mmcv writes ``np.uint8(hue * 255)``, which numpy 2 refuses for a negative hue. Both generations of mmcv do."""
    folders = fetched(("mmcv-lite-2.0.1", "mmengine-0.10.7", "mmpretrain-needs", "opencv"))
    run = Projects(folders, tmp_path).run("-c", HUES.format(first=first))
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("[False, True] ") and "mmcv-lite-2.0.1" in run.stdout


IMPORTED = """\
import etude.compat
etude.compat.install()
from etude_openmm.shared.reading.imported import missing_name
print([missing_name("mmcv.transforms", name, ()) for name in ("RandomFlip", "RandomFlipp")])
"""


def test_a_pure_python_config_may_import_what_only_mmcv_2_has(tmp_path: Path) -> None:
    run = Projects(fetched(("mmcv-lite-2.0.1", "mmengine-0.10.7")), tmp_path).run("-c", IMPORTED)
    assert run.stdout.strip() == (
        "[None, (\"mmcv.transforms has no 'RandomFlipp'\", \"did you mean 'RandomFlip'?\")]"
    ), run.stdout + run.stderr


COMPLETED = """\
import sys
import etude.compat
etude.compat.install()
from mmengine.config import Config
from etude_openmm.mmengine.projects import add_defaults
from mmpretrain.models import ImageClassifier
cfg = Config(dict(model=dict(type=ImageClassifier), train_dataloader=dict(num_workers=1), default_scope=None))
add_defaults(cfg)
print(sorted(cfg.train_dataloader))
"""


def test_dataloaders_of_pure_python_configs_are_completed_as_well(tmp_path: Path) -> None:
    """They set no scope; mmpretrain's ``tools/train.py`` keeps workers between epochs, which shows in the numbers."""
    run = Projects(fetched((*cases.PRETRAIN, *cases.ENGINE)), tmp_path).run("-c", COMPLETED)
    assert run.stdout.strip() == "['collate_fn', 'num_workers', 'persistent_workers', 'pin_memory']", run.stderr
