"""MMEngine configs: recognised, read with places, lowered to a plan, mistakes told with file, line and suggestion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etude import dialects
from etude.errors import ConfigError
from etude_openmm.mmengine import lower

BASE = """\
default_scope = 'mmengine'
model = dict(type='Net')
train_dataloader = dict(
    batch_size=2, num_workers=1,
    sampler=dict(type='DefaultSampler', shuffle=True), dataset=dict(type='D'))
train_cfg = dict(by_epoch=True, max_epochs=3, val_interval=1)
val_dataloader = dict(batch_size=2, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(type='D'))
val_cfg = dict()
val_evaluator = dict(type='Acc')
optim_wrapper = dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1), clip_grad=dict(max_norm=2))
param_scheduler = [dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=5)]
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=2), logger=dict(type='LoggerHook', interval=5))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "base.py").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def survey(folder: Path, text: str, *overrides: str) -> tuple[Any, list[str]]:
    (folder / "c.py").write_text("_base_ = './base.py'\n" + text)
    plan, findings = lower.survey(lower.read("c.py", overrides))
    return plan, [str(finding) for finding in findings]


def test_both_styles_are_recognised(folder: Path) -> None:
    (folder / "child.py").write_text("_base_ = './base.py'\nlr = 1\n")
    (folder / "lazy.py").write_text(
        "from mmengine.config import read_base\nwith read_base():\n    from .base import *\n"
    )
    assert [dialects.detect(name).name for name in ("base.py", "child.py", "lazy.py")] == ["mmengine"] * 3


def test_the_plan_holds_what_the_config_says(folder: Path) -> None:
    plan, findings = survey(folder, "", "train_cfg.max_epochs=5")
    assert findings == []
    assert (plan.dialect, plan.name, plan.train.epochs) == ("mmengine", "c", 5)
    assert (plan.loop.name, plan.data["train"].batch_size, plan.optimizers[""].short_clip.get("clip_norm")) == (
        "EpochBasedTrainLoop",
        2,
        2,
    )
    assert [(hook.spec.name, hook.priority) for hook in plan.hooks] == [
        ("RuntimeInfoHook", 10), ("IterTimerHook", 50), ("DistSamplerSeedHook", 50), ("LoggerHook", 60),
        ("ParamSchedulerHook", 70), ("CheckpointHook", 90),
    ]  # fmt: skip
    assert str(plan.hooks[-1].every) == "2ep"


def test_pure_python_configs_are_lowered_with_the_places_of_their_bases(folder: Path) -> None:
    (folder / "lazy.py").write_text(
        "from mmengine.config import read_base\nfrom torch.optim import AdamW\nwith read_base():\n    from .base import *\n"
        "optim_wrapper.update(\n    optimizer=dict(type=AdamW))\ntrain_cfg.max_epochs = 9\n"
    )
    tree = lower.read("lazy.py")
    plan = lower.lower(tree)
    assert (plan.optimizers[""].spec.name, plan.train.epochs) == ("torch.optim.AdamW", 9)
    assert str(tree.place("optim_wrapper", "optimizer")) == "lazy.py:6"
    assert str(tree.place("train_cfg", "max_epochs")) == "lazy.py:7"
    assert str(tree.place("train_cfg", "val_interval")) == "base.py:6"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("default_hooks = dict(\n    checkpoint=dict(\n        intervall=1))\n", "c.py:4: warning: CheckpointHook has no parameter 'intervall'; did you mean 'interval'?"),
        ("optim_wrapper = dict(_delete_=True, a=dict(optimizer=dict(type='SGD', lr=0.1)))\n", "c.py:2: optim_wrapper has no `optimizer`; give a `constructor` that makes a"),
        ("default_hooks = dict(timer=dict())\n", "c.py:2: default_hooks.timer has no `type`: it stands in place of the usual hook"),
        ("default_hooks = dict(loger=dict(interval=3))\n", "c.py:2: default_hooks.loger has no `type`; did you mean 'logger'?"),
        ("custom_hooks = [dict(type='EMAHok')]\n", "c.py:2: no hook is called 'EMAHok'; did you mean 'EMAHook'?"),
        ("custom_hooks = [dict(type='EarlyStoppingHook', monitr='a')]\n", "c.py:2: EarlyStoppingHook has no parameter 'monitr'; did you mean 'monitor'?"),
        ("param_scheduler = [dict(type='LinearLr')]\n", "c.py:2: no parameter scheduler is called 'LinearLr'; did you mean 'LinearLR'?"),
        ("param_scheduler = dict(_delete_=True, type='StepLR', step=1)\n", "c.py:2: StepLR has no parameter 'step'; did you mean 'step_size'?"),
        ("optim_wrapper = dict(accumulative_count=2)\n", "c.py:2: OptimWrapper has no parameter 'accumulative_count'; did you mean 'accumulative_counts'?"),
        ("optim_wrapper = dict(optimizer=dict(weight_decy=1))\n", "c.py:2: SGD has no parameter 'weight_decy'; did you mean 'weight_decay'?"),
        ("train_cfg = dict(max_epoch=4)\n", "c.py:2: EpochBasedTrainLoop has no parameter 'max_epoch'; did you mean 'max_epochs'?"),
        ("train_dataloader = dict(batchsize=4)\n", "c.py:2: unknown key train_dataloader.batchsize; did you mean 'batch_size'?"),
        ("optim_wrapper = dict(paramwise_cfg=dict(custom_key=dict()))\n", "c.py:2: unknown key optim_wrapper.paramwise_cfg.custom_key; did you mean 'custom_keys'?"),
        ("custom_imports = dict(imports=['nowhere_at_all'])\n", "c.py:2: custom_imports: no module or file 'nowhere_at_all' can be found"),
        ("param_schedler = []\n", "c.py:2: warning: unknown key param_schedler: nothing reads it; did you mean 'param_scheduler'?"),
        ("default_scope = 'mmengin'\n", "did you mean 'mmengine'?"),
        ("custom_hooks = [dict(type='EMAHook', momentun=0.1)]\n", "c.py:2: unknown key custom_hooks.0.momentun"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_place_and_suggestion(folder: Path, text: str, finding: str) -> None:
    assert any(finding in found for found in survey(folder, text)[1]), survey(folder, text)[1]


def test_what_a_class_of_the_user_needs_is_asked_for(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from mmengine.registry import MODELS\n@MODELS.register_module()\nclass Net:\n    def __init__(self, width): ...\n"
    )
    imports = "custom_imports = dict(imports=['mine'])\n"
    assert "base.py:2: Net needs the parameter 'width'" in survey(folder, imports)[1]
    assert not [told for told in survey(folder, f"{imports}model = dict(width=3)")[1] if "Net" in told]


def test_lowering_raises_all_mistakes_at_once(folder: Path) -> None:
    (folder / "c.py").write_text(
        "_base_ = './base.py'\ntrain_cfg = dict(max_epoch=1)\ncustom_hooks = [dict(type='EMAHok')]\n"
    )
    with pytest.raises(ConfigError) as failed:
        lower.lower(lower.read("c.py"))
    assert len(failed.value.findings) == 2


def test_lowering_imports_no_torch(folder: Path) -> None:
    code = "import sys; from etude_openmm.mmengine import lower; lower.lower(lower.read('base.py')); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
