"""mmcv 1.x configs: recognised, read with places, lowered to a plan, mistakes told with file, line and suggestion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etude import dialects
from etude.config import no_code
from etude.errors import ConfigError
from etude_openmm.mmcv1 import lower

BASE = """\
dataset_type = 'Toy'
model = dict(type='Net', backbone=dict(type='R', depth=3))
data = dict(
    samples_per_gpu=4, workers_per_gpu=1,
    train=dict(type=dataset_type, n=4),
    val=dict(type=dataset_type, n=4))
optimizer = dict(type='SGD', lr=0.1)
optimizer_config = dict(grad_clip=dict(max_norm=3))
lr_config = dict(policy='step', step=[1])
runner = dict(type='EpochBasedRunner', max_epochs=2)
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
checkpoint_config = dict(interval=1)
evaluation = dict(interval=2, metric='accuracy', save_best='auto')
workflow = [('train', 1)]
load_from = None
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "base.py").write_text(BASE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


#: What is told about the model of this config, which no project here has.
FOREIGN = "base.py:2: warning: no model is called 'Net'; install"


def survey(folder: Path, text: str, *overrides: str) -> tuple[Any, list[str]]:
    (folder / "c.py").write_text("_base_ = './base.py'\n" + text)
    plan, findings = lower.survey(lower.read("c.py", overrides))
    told = [str(finding) for finding in findings]
    return plan, [text for text in told if not text.startswith(FOREIGN)]


def test_a_config_is_recognised_by_its_keys_or_those_of_its_base(folder: Path) -> None:
    (folder / "child.py").write_text("_base_ = './base.py'\nmodel = dict(backbone=dict(depth=5))\n")
    (folder / "native.yaml").write_text("model: {type: Mlp}\ntrain: {epochs: 1}\noptim: {type: SGD}\n")
    assert dialects.detect("base.py").name == "mmcv1"
    assert dialects.detect("child.py").name == "mmcv1"
    assert not dialects.find("mmcv1").recognise("native.yaml", (folder / "native.yaml").read_text())


def test_the_plan_holds_what_the_config_says(folder: Path) -> None:
    plan, findings = survey(folder, "", "runner.max_epochs=5")
    assert findings == []
    assert (plan.dialect, plan.name, plan.train.epochs) == ("mmcv1", "c", 5)
    assert (plan.model.name, str(plan.model.at)) == ("Net", "base.py:2")
    assert (plan.data["train"].batch_size, plan.data["train"].workers, plan.data["val"].shuffle) == (4, 1, False)
    assert plan.optimizers[""].short_clip["clip_norm"] == 3
    assert [(hook.spec.name, hook.priority) for hook in plan.hooks] == [
        ("StepLrUpdaterHook", 10), ("OptimizerHook", 40), ("CheckpointHook", 50), ("IterTimerHook", 70),
        ("EvalHook", 70), ("TextLoggerHook", 90),
    ]  # fmt: skip
    assert plan.source["runner"]["max_epochs"] == 5


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("lr_config = dict(_delete_=True, policy='stepp', step=1)\n", "c.py:2: no policy is called 'stepp'; did you mean 'step'?"),
        ("lr_config = dict(\n    gama=0.5)\n", "c.py:3: StepLrUpdaterHook has no parameter 'gama'; did you mean 'gamma'?"),
        ("custom_hooks = [\n    dict(type='EMAHook',\n         momentm=1)]\n", "c.py:4: EMAHook has no parameter 'momentm'; did you mean 'momentum'?"),
        ("custom_hooks = [dict(type='EMAHok')]\n", "c.py:2: no hook is called 'EMAHok'; did you mean 'EMAHook'?"),
        ("custom_hooks = [dict(type='EMAHook', priority='HIGHT')]\n", "c.py:2: no priority is called 'HIGHT'; did you mean 'HIGH'?"),
        ("checkpoint_config = dict(max_keep_ckpt=1)\n", "c.py:2: CheckpointHook has no parameter 'max_keep_ckpt'; did you mean 'max_keep_ckpts'?"),
        ("evaluaton = dict(interval=1)\n", "c.py:2: warning: unknown key evaluaton: nothing reads it; did you mean 'evaluation'?"),
        ("optimizer = dict(momentm=0.9)\n", "c.py:2: SGD has no parameter 'momentm'; did you mean 'momentum'?"),
        ("optimizer = dict(type='SGDD')\n", "c.py:2: no optimizer is called 'SGDD'; did you mean 'SGD'?"),
        ("runner = dict(type='EpochBasedRuner')\n", "c.py:2: no runner is called 'EpochBasedRuner'; did you mean 'EpochBasedRunner'?"),
        ("log_config = dict(hook=[])\n", "c.py:2: unknown key log_config.hook; did you mean 'hooks'?"),
        ("leftover = 3\n", "c.py:2: warning: unknown key leftover: nothing reads it"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_place_and_suggestion(folder: Path, text: str, finding: str) -> None:
    assert finding in survey(folder, text)[1]


def test_variables_that_the_config_uses_itself_are_no_mistakes(folder: Path) -> None:
    text = "lr = 0.2\nnorm = dict(type='BN')\nmodel = dict(norm_cfg=norm)\noptimizer = dict(lr=lr)\n"
    assert survey(folder, text)[1] == []


def test_lowering_raises_all_mistakes_at_once(folder: Path) -> None:
    (folder / "c.py").write_text(
        "_base_ = './base.py'\noptimizer = dict(momentm=1)\ncustom_hooks = [dict(type='EMAHok')]\n"
    )
    with pytest.raises(ConfigError) as failed:
        lower.lower(lower.read("c.py"))
    assert len(failed.value.findings) == 2


def test_hooks_of_ones_own_modules_are_known_by_their_source(folder: Path) -> None:
    (folder / "my_hooks_x.py").write_text(
        "from mmcv.runner import HOOKS, Hook\n\n\n@HOOKS.register_module()\nclass Mine(Hook):\n"
        "    def __init__(self, level):\n        self.level = level\n"
    )
    text = "custom_imports = dict(imports=['my_hooks_x'])\ncustom_hooks = [dict(type='Mine', levl=1)]\n"
    plan, findings = survey(folder, text)
    assert plan.imports == ("my_hooks_x",)
    assert findings == ["c.py:3: Mine has no parameter 'levl'; did you mean 'level'?"]


def test_places_of_overrides_and_replaced_dicts(folder: Path) -> None:
    (folder / "c.py").write_text(
        "_base_ = './base.py'\nrunner = dict(\n    _delete_=True,\n    type='IterBasedRunner',\n    max_iters=3)\n"
    )
    tree = lower.read("c.py", ["optimizer.lr=0.5"])
    assert str(tree.place("runner", "max_iters")) == "c.py:5"
    assert str(tree.place("optimizer", "lr")) == "override 'optimizer.lr=0.5'"
    assert str(tree.place("optimizer", "type")) == "base.py:7"
    assert lower.lower(tree).train.steps == 3


@pytest.mark.parametrize("name", ["base.py", "over.yaml", "over.json"])
def test_a_python_config_can_be_refused_also_as_a_base(folder: Path, name: str) -> None:
    (folder / "over.yaml").write_text("_base_: base.py\n")
    (folder / "over.json").write_text('{"_base_": ["base.py"]}')
    with no_code.forbidden(), pytest.raises(ConfigError, match="base.py: a Python config runs code"):
        lower.read(name)


def test_lowering_imports_no_torch(folder: Path) -> None:
    code = "import sys; from etude_openmm.mmcv1 import lower; lower.lower(lower.read('base.py')); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_tree_remembers_what_overrode_what(folder: Path) -> None:
    (folder / "c.py").write_text("_base_ = './base.py'\noptimizer = dict(lr=0.2)\n")
    tree = lower.read("c.py", ["optimizer.lr=0.5"])
    told = [(str(place), value) for place, value in tree.history["optimizer", "lr"]]
    assert told == [("base.py:7", 0.1), ("c.py:2", 0.2), ("override 'optimizer.lr=0.5'", 0.5)]
