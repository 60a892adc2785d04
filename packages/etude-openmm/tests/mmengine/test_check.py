"""``etude check`` on configs of a small project, in both styles: one mistake, one message, at its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import main
from etude.inspection import signatures as scan

PARTS = """\
from torch import nn
from torch.utils.data import Dataset
from mmengine.evaluator import BaseMetric
from mmengine.hooks import Hook
from mmengine.model import BaseModel, BaseModule
from mmengine.registry import DATASETS, HOOKS, LOOPS, METRICS, MODELS, TRANSFORMS
from mmengine.runner import ValLoop

@MODELS.register_module()
class Tower(BaseModule):
    def __init__(self, width, depth=2, init_cfg=None): ...

@MODELS.register_module()
class ToyNet(BaseModel):
    def __init__(self, backbone, num_classes=2, data_preprocessor=None, init_cfg=None): ...

@DATASETS.register_module()
class ToySet(Dataset):
    def __init__(self, length=16, noise=0.0): ...

@METRICS.register_module()
class Acc(BaseMetric):
    default_prefix = 'toy'

    def __init__(self, topk=1, collect_device='cpu', prefix=None): ...

    def compute_metrics(self, results):
        return {'acc': 1.0}

@LOOPS.register_module()
class OwnVal(ValLoop): ...

@TRANSFORMS.register_module()
class Jitter: ...

@HOOKS.register_module()
class MyHook(Hook):
    def __init__(self, every=1): ...
"""
TEXT = """\
custom_imports = dict(imports=['parts_of_check'], allow_failed_imports=False)
model = dict(
    type='ToyNet',
    backbone=dict(type='Tower', width=8, depth=3), num_classes=2)
train_dataloader = dict(
    batch_size=4, sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='ToySet', length=16))
val_dataloader = dict(
    batch_size=4, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(type='ToySet', length=8))
val_cfg = dict()
val_evaluator = dict(type='Acc', topk=1)
train_cfg = dict(by_epoch=True, max_epochs=3, val_interval=1)
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1, momentum=0.9),
    clip_grad=dict(max_norm=1.0))
param_scheduler = [dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=3)]
default_hooks = dict(
    checkpoint=dict(type='CheckpointHook', interval=1, save_best='toy/acc', rule='greater'))
custom_hooks = [dict(type='MyHook', every=2), dict(type='EMAHook', momentum=0.01)]
randomness = dict(seed=0)
env_cfg = dict(cudnn_benchmark=False, mp_cfg=dict(mp_start_method='fork'))
"""
PURE = """\
from mmengine.dataset import DefaultSampler
from mmengine.hooks import CheckpointHook, EMAHook
from mmengine.optim import OptimWrapper
from torch.optim import SGD

from parts_of_check import Acc, MyHook, ToyNet, ToySet, Tower

model = dict(
    type=ToyNet, backbone=dict(type=Tower, width=8, depth=3), num_classes=2)
train_dataloader = dict(
    batch_size=4, sampler=dict(type=DefaultSampler, shuffle=True),
    dataset=dict(type=ToySet, length=16))
val_dataloader = dict(
    batch_size=4, sampler=dict(type=DefaultSampler, shuffle=False), dataset=dict(type=ToySet, length=8))
val_cfg = dict()
val_evaluator = dict(type=Acc, topk=1)
train_cfg = dict(by_epoch=True, max_epochs=3, val_interval=1)
optim_wrapper = dict(
    type=OptimWrapper, optimizer=dict(type=SGD, lr=0.1, momentum=0.9))
default_hooks = dict(
    checkpoint=dict(type=CheckpointHook, interval=1))
custom_hooks = [dict(type=MyHook, every=2), dict(type=EMAHook, momentum=0.01)]
"""


VALUES_PARTS = """\
from mmengine.registry import DATASETS, MODELS
from tests.mmengine import toy
DATASETS.register_module(module=toy.Numbers, name='Numbers', force=True)
MODELS.register_module(module=toy.Net, name='NumbersNet', force=True)
"""
VALUES = """\
custom_imports = dict(imports=['parts_of_values'])
model = dict(type='NumbersNet')
train_dataloader = dict(
    batch_size=4, sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='Numbers'))
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1))
train_cfg = dict(by_epoch=True, max_epochs=1)
custom_hooks = [dict(type='EMAHook', momentum=0.01)]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "parts_of_check.py").write_text(PARTS)
    monkeypatch.chdir(tmp_path)
    scan.forget()
    return tmp_path


def told(text: str, capsys: pytest.CaptureFixture[str], *more: str) -> list[str]:
    """What ``etude check`` says about a config, without its first and last line."""
    Path("c.py").write_text(text)
    main(["check", "c.py", *more])
    said = capsys.readouterr()
    assert said.err == ""
    return [line for line in said.out.splitlines()[:-1] if "Étude runs" not in line]


@pytest.mark.parametrize("text", [TEXT, PURE], ids=["text", "pure"])
def test_a_right_config_is_left_alone(project: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert told(text, capsys) == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("length=16", "lenght=16", "c.py:7: ToySet has no parameter 'lenght'; did you mean 'length'?"),
        ("length=16", "extra=16", "c.py:7: ToySet has no parameter 'extra'; known: length, noise"),
        ("num_classes=2", "classes=2", "c.py:4: ToyNet has no parameter 'classes'; did you mean 'num_classes'?"),
        ("depth=3", "dept=3", "c.py:4: warning: Tower has no parameter 'dept'; did you mean 'depth'?"),
        ("depth=3", "layers=3", "c.py:4: warning: Tower has no parameter 'layers'; known: depth, width"),
        ("width=8, ", "width=8, norm_cfg=dict(type='torch.nn.BatchNorm2d'), ", "c.py:4: warning: Tower has no parameter 'norm_cfg'; known: depth, width"),
        ("type='ToyNet'", "type='SimCLR'", "c.py:3: warning: no model is called 'SimCLR'; known: BaseDataPreprocessor, BaseTTAModel, CosineEMA, ExponentialMovingAverage, ImgDataPreprocessor, MomentumAnnealingEMA, StochasticWeightAverage, Tower, ToyNet"),
        ("'ToySet', length=16", "'ToyData'", "c.py:7: warning: no dataset is called 'ToyData'; did you mean 'ToySet'?"),
        ("type='Acc'", "type='Accuracy'", "c.py:11: warning: no metric is called 'Accuracy'; known: Acc, DumpResults, Evaluator"),
        ("topk=1", "top=1", "c.py:11: Acc has no parameter 'top'; did you mean 'topk'?"),
        ("type='OptimWrapper'", "constructor='LayerDecay'", "c.py:14: warning: no optim wrapper constructor is called 'LayerDecay'; known: DefaultOptimWrapperConstructor"),
        ("momentum=0.01", "ema_type='StochasticWeightAverag'", "c.py:19: no model is called 'StochasticWeightAverag'; did you mean 'StochasticWeightAverage'?"),
        ("max_norm", "maxnorm", "c.py:15: unknown key optim_wrapper.clip_grad.maxnorm; did you mean 'max_norm'?"),
        ("max_epochs=3", "max_epochs='3'", "c.py:12: train_cfg.max_epochs must be a whole number of at least 0, not '3'; write 3 without quotes"),
        ("max_epochs=3", "max_epochs=3, max_iters=9", "c.py:12: train_cfg.max_iters does nothing when by_epoch is True; by_epoch=False would use it"),
        ("seed=0", "sed=0", "c.py:20: unknown key randomness.sed; did you mean 'seed'?"),
        ("seed=0", "random_state=0", "c.py:20: unknown key randomness.random_state; known: deterministic, diff_rank_seed, seed"),
        ("checkpoint=dict", "chekpoint=dict", "c.py:18: warning: default_hooks.chekpoint is a second CheckpointHook beside the one that every run has; did you mean 'checkpoint'?"),
        ("checkpoint=dict", "ckpt=dict", "c.py:18: warning: default_hooks.ckpt is a second CheckpointHook beside the one that every run has; did you mean 'checkpoint'?"),
        ("val_evaluator =", "val_evalutor =", "c.py:11: warning: unknown key val_evalutor: nothing reads it; did you mean 'val_evaluator'?"),
        ("val_dataloader =", "val_loader =", "c.py:8: warning: unknown key val_loader: nothing reads it; did you mean 'val_dataloader'?"),
        ("imports=['parts_of_check']", "imports=['part_of_check']", "c.py:1: custom_imports: no module or file 'part_of_check' can be found; did you mean 'parts_of_check'?"),
        ("every=2", "evry=2", "c.py:19: MyHook has no parameter 'evry'; did you mean 'every'?"),
        ("sampler=dict(type='DefaultSampler', shuffle=True)", "shuffle=True", "c.py:6: train_dataloader.shuffle is a matter of the sampler; write sampler=dict(type='DefaultSampler', shuffle=True)"),
        ("randomness =", "optimizer = dict(lr=1)\nrandomness =", "c.py:20: warning: unknown key optimizer: nothing reads it; MMEngine reads optim_wrapper.optimizer"),
        ("dict(type='MyHook', every=2)", "'MyHook'", "c.py:19: custom_hooks.0: a hook is a dict, not 'MyHook'; write dict(type='MyHook')"),
        ("optimizer=dict(type='SGD', lr=0.1, momentum=0.9)", "optimizer='SGD'", "c.py:14: optim_wrapper.optimizer must be a dict; write dict(type='SGD', …)"),
        ("width=8", "width=", "c.py:4: not valid Python: invalid syntax"),
        ("depth=3", "depth=3, init_cfg=dict(type='Pretrained', checkpoint='')", "c.py:4: warning: model.backbone.init_cfg.checkpoint: no file is named; name one, or leave `init_cfg` out"),
        ("depth=3", "depth=3, init_cfg=dict(type='Pretrained', checkpoint='a.pth')", "c.py:4: warning: model.backbone.init_cfg.checkpoint: there is no file 'a.pth'"),
        ("randomness =", "load_from = 'epoch_2.pth'\nrandomness =", "c.py:20: warning: load_from: there is no file 'epoch_2.pth'; did you mean 'epoch_3.pth'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_once_at_its_line(
    project: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, finding: str
) -> None:
    (project / "epoch_3.pth").touch()
    assert told(TEXT.replace(old, new, 1), capsys) == [finding]


def test_a_method_of_a_hook_that_nothing_calls_is_told_at_its_line(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = "    def before_train_itr(self, runner): ...\n    def after_epoch(self, runner): ...\n"
    helper = "    def after_val(self, runner): self.after_vals()\n    def after_vals(self): ...\n"
    (project / "parts_of_check.py").write_text(f"{PARTS}{methods}{helper}")
    line = len(PARTS.splitlines()) + 1
    where = "a run calls no such method of a hook; did you mean"
    assert told(TEXT, capsys) == [
        f"parts_of_check.py:{line}: warning: MyHook.before_train_itr: {where} 'before_train_iter'?",
        f"parts_of_check.py:{line + 1}: warning: MyHook.after_epoch: {where} 'after_train_epoch'?",
    ]


def test_a_misspelt_transform_is_called_one(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "parts_of_check.py").write_text(PARTS.replace("noise=0.0", "pipeline=()"))
    wrong = "c.py:7: no transform is called 'Jiter'; did you mean 'Jitter'?"
    assert told(TEXT.replace("length=16", "pipeline=[dict(type='Jiter')]"), capsys) == [wrong]


def test_a_step_of_a_pipeline_is_made_of_what_the_config_writes_alone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = "@TRANSFORMS.register_module()\nclass {}:\n    def __init__(self, {}): ...\n"
    parts = (
        PARTS.replace("noise=0.0", "pipeline=()") + steps.format("Crop", "size") + steps.format("Twice", "transforms")
    )
    (project / "parts_of_check.py").write_text(parts)
    inner = "pipeline=[dict(type='Crop', size=8), dict(type='Twice', transforms=[[dict(type='Crop')]]),\n dict(type='Crop')]"
    assert told(TEXT.replace("length=16", inner), capsys) == [
        f"c.py:{n}: Crop needs the parameter 'size'" for n in (7, 8)
    ]


def test_a_key_of_the_base_is_no_variable_of_the_child(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "base.py").write_text(f"width = 8\n{TEXT.replace('width=8', 'width=width')}")
    child = "_base_ = './base.py'\nmodel = dict(backbone=dict(width={} * 2))\n"
    hint = "`_base_.width` is that of the base"
    assert told(child.format("width"), capsys) == [f"c.py:2: name 'width' is not defined; {hint}"]
    assert told(child.format("widht"), capsys) == [f"c.py:2: name 'widht' is not defined; {hint}"]
    assert told(child.format("_base_.width"), capsys) == []


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("import SGD", "import Sgd", "c.py:4: torch.optim has no 'Sgd'; did you mean 'SGD'?"),
        ("mmengine.optim import", "mmengine.optimm import", "c.py:3: there is no module mmengine.optimm; did you mean 'mmengine.optim'?"),
        ("import OptimWrapper", "import OptimWraper", "c.py:3: mmengine.optim has no 'OptimWraper'; did you mean 'OptimWrapper'?"),
        ("import Acc,", "import Acy,", "c.py:6: parts_of_check has no 'Acy'; did you mean 'Acc'?"),
        ("from parts_of_check", "from part_of_check", "c.py:6: there is no module part_of_check; did you mean 'parts_of_check'?"),
        ("type=ToyNet", "type=ToyNett", "c.py:9: name 'ToyNett' is not defined; did you mean 'ToyNet'?"),
        ("length=16", "extra=16", "c.py:12: parts_of_check.ToySet has no parameter 'extra'; known: length, noise"),
        ("lr=0.1", "learning_rate=0.1", "c.py:19: torch.optim.SGD has no parameter 'learning_rate'; did you mean 'lr'?"),
        ("every=2", "evry=2", "c.py:22: parts_of_check.MyHook has no parameter 'evry'; did you mean 'every'?"),
        ("interval=1))", "intrval=1))", "c.py:21: warning: mmengine.hooks.CheckpointHook has no parameter 'intrval'; did you mean 'interval'?"),
        ("type=Acc,", "type='parts_of_check.Accc',", "c.py:16: parts_of_check has no 'Accc'; did you mean 'Acc'?"),
        ("type=ToyNet, ", "type=ToyNet(), ", "c.py:9: parts_of_check.ToyNet is only a stand-in in a config and cannot be called; write dict(type=..., ...) and let the registry build it"),
    ],
)  # fmt: skip
def test_the_same_in_pure_python(
    project: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, finding: str
) -> None:
    assert told(PURE.replace(old, new, 1), capsys) == [finding]


def test_what_is_added_to_a_list_of_the_base_stands_where_it_is_added(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "base.py").write_text(PURE)
    child = "from mmengine.config import read_base\nwith read_base():\n    from .base import *\n"
    wrong = "no hook is called 'MyHok'; did you mean 'MyHook'?"
    assert told(f"{child}custom_hooks.append(dict(type='MyHok'))\n", capsys) == [f"c.py:4: {wrong}"]
    assert told(f"{child}\ncustom_hooks += [dict(type='MyHok')]\n", capsys) == [f"c.py:5: {wrong}"]
    (project / "base.py").write_text(PURE.replace("every=2", "evry=2"))
    at_home = "base.py:22: parts_of_check.MyHook has no parameter 'evry'; did you mean 'every'?"
    assert told(f"{child}custom_hooks.append(dict(type=MyHook))\n", capsys) == [at_home]


def test_what_a_child_inherits_without_meaning_to_is_its_own_mistake(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "base.py").write_text(TEXT)
    child = "_base_ = './base.py'\noptim_wrapper = dict(\n    optimizer=dict({}type='AdamW', lr=0.1))\n"
    (line,) = told(child.format(""), capsys)
    assert line.startswith("c.py:3: AdamW has no parameter 'momentum', which is inherited from base.py:")
    assert "`_delete_=True` in this dict drops what it inherits" in line
    assert told(child.format("_delete_=True, "), capsys) == []
    (line,) = told(child.format("_delete=True, "), capsys)
    assert line == "c.py:3: unknown key optim_wrapper.optimizer._delete; did you mean '_delete_'?"


def test_a_variable_that_only_the_base_used_is_set_too_late(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = "optimizer = dict(type='SGD', lr=0.1)\n" + TEXT.replace(
        "optimizer=dict(type='SGD', lr=0.1, momentum=0.9)", "optimizer=optimizer"
    )
    (project / "base.py").write_text(base)
    child = "_base_ = './base.py'\noptimizer = dict(type='SGD', lr=0.01)\n"
    late = "c.py:2: warning: optimizer is set here, but only base.py reads it, which was run before"
    assert told(child, capsys) == [f"{late}; set the keys that were made of it"]
    assert told(f"{child}optim_wrapper = dict(optimizer=optimizer)\n", capsys) == []


def test_a_loop_by_iterations_has_its_own_keys(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXT.replace("by_epoch=True, max_epochs=3", "by_epoch=False, max_iters=3")
    text = text.replace("interval=1, save_best", "interval=1, by_epoch=False, save_best")
    assert told(text, capsys) == []
    wrong = "c.py:12: IterBasedTrainLoop has no parameter 'max_iter'; did you mean 'max_iters'?"
    assert wrong in told(text.replace("max_iters=3", "max_iter=3"), capsys)


def test_a_misspelt_option_names_itself(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = (
        "override 'trian_cfg.max_epochs=3': warning: unknown key trian_cfg: nothing reads it; did you mean 'train_cfg'?"
    )
    assert told(TEXT, capsys, "--cfg-options", "trian_cfg.max_epochs=3") == [wrong]


def test_several_optimizers_are_held_against_their_classes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = "from mmengine.registry import OPTIM_WRAPPER_CONSTRUCTORS as C\n@C.register_module()\nclass Both: ...\n"
    (project / "parts_of_check.py").write_text(PARTS + more)
    old = "type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1, momentum=0.9),\n    clip_grad=dict(max_norm=1.0))"
    two = "constructor='Both', a=dict(optimizer=dict(type='SGD', lr=0.1)), b=dict(optimizer=dict(type='Adam', lr=0.1)))"
    scheduled = (
        TEXT.replace(old, two)
        .replace("param_scheduler = [", "param_scheduler = dict(a=[")
        .replace("end=3)]", "end=3)])")
    )
    assert told(scheduled, capsys) == []
    wrong = "c.py:14: Adam has no parameter 'lrr'; did you mean 'lr'?"
    assert told(scheduled.replace("'Adam', lr", "'Adam', lrr"), capsys) == [wrong]


def test_what_classes_hand_on_to_their_bases_is_known(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handed = "class ToySet(BaseDataset):\n    def __init__(self, length=16, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n"
    parts = PARTS.replace("class ToySet(Dataset):\n    def __init__(self, length=16, noise=0.0): ...\n", handed)
    (project / "parts_of_check.py").write_text(f"from mmengine.dataset import BaseDataset\n{parts}")
    text = TEXT.replace("length=16", "length=16, ann_file='a.json', pipeline=[], lazy_init=True")
    assert told(text, capsys) == []
    wrong = "c.py:7: ToySet has no parameter 'ann_fil'; did you mean 'ann_file'?"
    assert told(text.replace("ann_file", "ann_fil"), capsys) == [wrong]


def test_modules_that_import_by_a_function_may_register_anything(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "parts_of_check.py").write_text(f"def more():\n    from . import others\n{PARTS}")
    (said,) = told(TEXT.replace("type='Acc', topk=1", "type='FarAway'"), capsys)
    assert said.startswith("c.py:11: warning: no metric is called 'FarAway'")
    assert told("tta_model = dict(type='BaseTTAModel')\n" + TEXT, capsys) == []


@pytest.mark.parametrize("verb", ["check", "train"])
def test_the_project_that_a_config_is_for_is_named_once_when_it_is_not_installed(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.py").write_text(
        "default_scope = 'mmnowhere'\n"
        "model = dict(type='FarNet', backbone=dict(type='FarTower'))\n"
        "train_dataloader = dict(batch_size=2, dataset=dict(type='FarSet', pipeline=[dict(type='FarStep')]),\n"
        "                        sampler=dict(type='DefaultSampler', shuffle=True))\n"
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))\n"
        "train_cfg = dict(by_epoch=True, max_epochs=1)\n"
    )
    assert main([verb, "c.py"]) == 2
    said = "".join(capsys.readouterr())
    assert said.count("c.py:2: no model is called 'FarNet'; mmnowhere, which the config is for, is not installed") == 1
    assert "pip install mmnowhere" in said and "FarSet" not in said and "Traceback" not in said


def test_a_variable_that_resembles_another_one_is_no_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (said,) = told(f"{TEXT}\neval_pipeline = []\n", capsys)
    assert "warning: unknown key eval_pipeline: nothing reads it" in said


@pytest.mark.parametrize(
    ("old", "new", "finding"),
    [
        ("lr=0.1", "lr=-0.1", "c.py:6: SGD cannot be made: Invalid learning rate: -0.1"),
        ("momentum=0.01", "momentum=1.5", "c.py:8: ExponentialMovingAverage cannot be made: momentum must be in range"),
        ("'OptimWrapper', ", "'OptimWrapper', clip_grad=1.0, ", "c.py:6: OptimWrapper cannot be made: If `clip_grad` is not None"),
        ("max_epochs=1", "max_epochs=1, val_interval=0", "val_interval must be at least 1, but got 0"),
    ],
)  # fmt: skip
def test_wrong_values_are_told_by_the_classes_before_anything_is_trained(
    project: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, finding: str
) -> None:
    (project / "parts_of_values.py").write_text(VALUES_PARTS)
    Path("c.py").write_text(VALUES.replace(old, new, 1))
    assert main(["train", "c.py", "--work-dir", "out", "-q"]) == 2
    assert finding in capsys.readouterr().err
    assert not list(Path("out").rglob("*.pth"))
