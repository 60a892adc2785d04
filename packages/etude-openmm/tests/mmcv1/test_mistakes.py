"""Likely mistakes in configs of mmclassification's style: found by ``etude check``, told with file, line and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude.cli import main

PARTS = """
from mmcls.datasets import DATASETS
from mmcls.models import BACKBONES, CLASSIFIERS
from mmcv.runner import HOOKS, Hook
from mmcv.runner.optimizer import OPTIMIZER_BUILDERS, DefaultOptimizerConstructor

@BACKBONES.register_module(force=True)
class TinyNet:
    def __init__(self, depth, width=4, init_cfg=None):
        pass

@CLASSIFIERS.register_module(force=True)
class OwnModel:
    def __init__(self, width=4):
        pass

@DATASETS.register_module(force=True)
class OwnData:
    def __init__(self, split, test_mode=False):
        pass

@HOOKS.register_module(force=True)
class OwnHook(Hook):
    def after_train_itr(self, runner):
        pass

@OPTIMIZER_BUILDERS.register_module(force=True)
class OwnConstructor(DefaultOptimizerConstructor):
    pass
"""
BASE = """\
custom_imports = dict(imports=['parts_of_mistakes'], allow_failed_imports=False)
model = dict(type='OwnModel', width=3)
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='OwnData', split='a'), val=dict(type='OwnData', split='b'))
optimizer = dict(type='SGD', lr=0.1, momentum=0.9)
optimizer_config = dict(grad_clip=None)
lr_config = dict(policy='CosineAnnealing', min_lr_ratio=0.01, warmup='linear', warmup_iters=5)
runner = dict(type='EpochBasedRunner', max_epochs=2)
checkpoint_config = dict(interval=1)
log_config = dict(interval=3, hooks=[dict(type='TextLoggerHook')])
evaluation = dict(interval=1, metric='accuracy')
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``check("lr_config = …")`` is what ``etude check`` prints about a config that has these lines from its third on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts_of_mistakes.py").write_text(PARTS)
    (tmp_path / "base.py").write_text(BASE)

    def run(lines: str, *flags: str) -> str:
        (tmp_path / "child.py").write_text(f"_base_ = ['base.py']\n\n{lines}\n")
        code = main(["check", "child.py", *flags])
        said = "\n".join(line for line in capsys.readouterr().out.splitlines() if "Étude runs" not in line)
        assert code == (2 if said.endswith(("mistake", "mistakes")) or "mistake, " in said.splitlines()[-1] else 0)
        return said

    return run


def test_the_base_alone_is_fine(check: Any) -> None:
    assert check("") == "child.py: no mistakes found"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("model = dict(type='Distant')", "warning: no model is called 'Distant'; install the project that the config is for; MMC"),
        ("model = dict(_delete_=True, type='ImageClassifier')", "warning: no model is called 'ImageClassifier'; install the project that the config is for; MMC"),
        ("model = dict(type='OwnModl')", "no model is called 'OwnModl'; did you mean 'OwnModel'?"),
        ("data = dict(train=dict(type='OwnDat'))", "no dataset is called 'OwnDat'; did you mean 'OwnData'?"),
        ("custom_imports = dict(imports=['parts_of_mistake'])\nmodel = dict(type='OwnModl')", "parts_of_mistake"),
        ("lr_config = dict(policy='cosine')", "no policy is called 'cosine'; did you mean 'CosineAnnealing'?"),
        ("custom_hooks = [dict(type='EMAHook', priority=150)]", "a priority is a whole number from 0 to 100 or a name"),
        ("optimizer = dict(constructor='OwnConstuctor')", "no optimizer constructor is called 'OwnConstuctor'; did you mean 'OwnConstructor'?"),
        ("optimizer = dict(paramwise_cgf=dict())", "did you mean 'paramwise_cfg'?"),
        ("optimizer = dict(_delete_=True, type='SGD', learning_rate=0.1)", "SGD has no parameter 'learning_rate'; did you mean 'lr'?"),
        ("model = dict(stages=3)", "OwnModel has no parameter 'stages'; known: width"),
        ("data = dict(train=dict(_delete_=True, type='OwnData'))", "OwnData needs the parameter 'split'"),
        ("load_from = 'nowhere.pth'", "warning: load_from: there is no file 'nowhere.pth'"),
        ("momentum_config = dict(_delete_=True, policy='step', step=[2])", "`_delete_` has nothing to replace"),
        ("epochs = 3\nseed = epoch + 1", "name 'epoch' is not defined; did you mean 'epochs'?"),
        ("seed = int('x')", "the config raised ValueError: invalid literal"),
        ("seed = {{ _base_.sed }}", "_base_.sed: the bases have no 'sed'"),
        ("optimizer_config = dict(grad_clip=dict(max_norm=1))", "set `_delete_=True` in the child"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line(check: Any, lines: str, told: str) -> None:
    said = check(lines)
    line = 3 if lines.startswith("custom_imports") else 2 + len(lines.splitlines())
    assert [text for text in said.splitlines() if text.startswith(f"child.py:{line}: ") and told in text], said
    assert said.endswith((": 1 mistake", ": 1 warning"))


def test_only_what_an_optimizer_takes_is_proposed(check: Any) -> None:
    assert "typename" not in check("optimizer = dict(zzz=1)")


def test_a_method_of_a_hook_that_nothing_calls_is_told(check: Any) -> None:
    said = check("custom_hooks = [dict(type='OwnHook')]")
    told = "warning: OwnHook.after_train_itr: a run calls no such method of a hook; did you mean 'after_train_iter'?"
    assert told in said and said.startswith("parts_of_mistakes.py:")


def test_an_override_is_blamed_for_what_it_says(check: Any) -> None:
    assert "override 'log_config.hooks.0.type=TextLogger': no " in check("", "log_config.hooks.0.type=TextLogger")
    assert "override 'optimizer.lrr=1': SGD has no parameter 'lrr'" in check("", "optimizer.lrr=1")


def test_a_forgotten_delete_is_told_of_the_child(check: Any) -> None:
    said = check("lr_config = dict(\n    policy='step', step=[3])")
    assert "child.py:4: StepLrUpdaterHook has no parameter 'min_lr_ratio', which is inherited from base.py:6; " in said
    assert "`_delete_=True` in this dict drops what it inherits" in said
    assert said.endswith(": 1 mistake")
    said = check("", "--cfg-options", "lr_config.policy=step", "lr_config.step=[1]")
    assert "override 'lr_config.policy=step': " in said and "`lr_config._delete_=True` drops what it inherits" in said


def test_the_base_is_blamed_for_its_own_mistakes(check: Any) -> None:
    Path("base.py").write_text(BASE.replace("min_lr_ratio", "min_lr_ration"))
    assert "base.py:6: " in check("lr_config = dict(warmup_iters=7)")


@pytest.mark.parametrize("marker", ["_delete", "delete_", "_delte_", "__delete__"])
def test_a_misspelt_delete_is_the_only_mistake_told(check: Any, marker: str) -> None:
    said = check(f"lr_config = dict(policy='step',\n    {marker}=True, step=[3])")
    assert said == (
        f"child.py:4: unknown key lr_config.{marker}; did you mean '_delete_'?\nchild.py: 1 mistake"
    )  # fmt: skip


def test_a_misspelt_base_is_told(check: Any) -> None:
    Path("other.py").write_text("_base = 'base.py'\nlr_config = dict(policy='fixed')\n")
    said = check("", "other.py")
    assert "other.py:1: unknown key _base; did you mean '_base_'?" in said


def test_keys_that_two_bases_share_are_told_with_the_line_of_the_bases(check: Any) -> None:
    Path("more.py").write_text("optimizer = dict(type='SGD', lr=0.1)\n")
    Path("two.py").write_text("\n_base_ = ['base.py', 'more.py']\n")
    assert "two.py:2: Duplicate key is not allowed among bases. Duplicate keys: optimizer" in check("", "two.py")
