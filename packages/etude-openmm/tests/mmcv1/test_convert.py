"""A converted config trains the same bits as the original where nothing is random."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest
import torch
import yaml

from etude import api
from etude.build import Options
from etude.cli import main
from etude.errors import ConfigError
from etude_openmm.mmcv1 import lower
from etude_openmm.mmcv1.convert import convert
from tests import zygote
from tests.across.converting import prepare, require_same_bits, weights
from tests.sampling import sample

PARTS = """\
import random
import numpy as np
import torch
from mmcls.models import CLASSIFIERS
from mmcls.datasets import DATASETS
from mmcv.runner import HOOKS, OPTIMIZERS, RUNNERS
from mmcv.runner import BaseModule, EpochBasedRunner, Hook


@DATASETS.register_module(force=True)
class ToyOfConvert(torch.utils.data.Dataset):
    def __init__(self, n, offset=0, noisy=False, test_mode=False):
        self.n, self.offset, self.noisy = n, offset, noisy

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor([((7 * (i + self.offset)) % 11) / 11, ((3 * i) % 5) / 5])
        if self.noisy:
            x = x + 0.1 * torch.randn(2) + 0.1 * random.random() + 0.1 * float(np.random.rand())
        return dict(img=x, gt_label=torch.tensor([((i * i) % 7) / 7]))

    def evaluate(self, results, metric='accuracy', logger=None, **kwargs):
        return {metric: float(np.mean(results)), 'text': 'no number'}


@CLASSIFIERS.register_module(force=True)
class NetOfConvert(BaseModule):
    def __init__(self, hidden, norm=False, head=None, dropout=0.0, conv=False, init_cfg=None):
        super().__init__(init_cfg)
        self.scale = torch.nn.Parameter(torch.ones(1))
        self.conv = torch.nn.Conv2d(1, 1, 1) if conv else None
        self.dropout = torch.nn.Dropout(dropout)
        self.fc1, self.norm, self.fc2 = torch.nn.Linear(2, hidden), torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, 1)

    def forward(self, img, gt_label=None, return_loss=True, **kwargs):
        img = self.scale * (img if self.conv is None else self.conv(img[:, None, None])[:, 0, 0])
        out = self.fc2(self.norm(self.dropout(torch.tanh(self.fc1(img)))))
        return ((out - gt_label) ** 2).mean() if return_loss else list(out.detach().numpy())

    def val_step(self, data, optimizer=None, **kwargs):
        return self.train_step(data)

    def train_step(self, data, optimizer=None, **kwargs):
        loss = self(**data)
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data['img']))


@OPTIMIZERS.register_module(force=True)
class SignOfConvert(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, weights=(1, 2)):
        assert isinstance(weights, tuple)
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is not None:
                    p.add_(p.grad.sign(), alpha=-group['lr'])


@RUNNERS.register_module(force=True)
class RunnerOfConvert(EpochBasedRunner):
    pass


SEEN = []


@HOOKS.register_module(force=True)
class RatesOfConvert(Hook):
    def before_train_iter(self, runner):
        SEEN.append(runner.optimizer.param_groups[0]['lr'])


@HOOKS.register_module(force=True)
class GradientOfConvert(Hook):
    def after_train_iter(self, runner):
        largest = runner.model.fc1.weight.grad.abs().max()
        runner.log_buffer.update(dict(largest=largest.item()), runner.outputs['num_samples'])
        runner.model.fc2.bias.data.sub_(0.01 * largest)


@HOOKS.register_module(force=True)
class BufferOfConvert(Hook):
    def after_train_iter(self, runner):
        runner.log_buffer.average(3)


@HOOKS.register_module(force=True)
class ShrinkOfConvert(Hook):
    def __init__(self, by):
        self.by = by

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, 3) and runner.max_epochs:
            with torch.no_grad():
                runner.model.fc2.bias.mul_(self.by)
"""
BASE = """\
custom_imports = dict(imports=['parts_of_convert'], allow_failed_imports=False)
model = dict(type='NetOfConvert', hidden=5, head=dict(type='Any', sizes=(1, 2)), init_cfg=dict(type='Normal', layer='Linear', std=0.5))
data = dict(samples_per_gpu=4, workers_per_gpu=0, train_dataloader=dict(shuffle=False), train=dict(type='ToyOfConvert', n=18), val=dict(type='ToyOfConvert', n=6))
optimizer = dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.01)
optimizer_config = dict(grad_clip=dict(max_norm=0.5, norm_type=2))
lr_config = dict(policy='step', step=[1, 2])
runner = dict(type='EpochBasedRunner', max_epochs=4)
log_config = dict(interval=2, hooks=[dict(type='TextLoggerHook')])
checkpoint_config = dict(interval=2)
evaluation = dict(interval=2)
workflow = [('train', 1)]
log_level = 'INFO'
load_from = None
resume_from = None
seed = 3
device = 'cpu'
"""
ITERATIONS = "runner = dict(_delete_=True, type='IterBasedRunner', max_iters=7)\n"
VARIANTS = {
    "step": "",
    "a hook of one's own": "custom_hooks = [dict(type='ShrinkOfConvert', by=0.5, priority='LOW')]\n",
    "paramwise": "optimizer = dict(type='AdamW', betas=(0.8, 0.9), _delete_=True, lr=0.01, weight_decay=0.1, paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys={'fc1': dict(lr_mult=0.1)}))\noptimizer_config = dict(grad_clip=None)\n",
    "an optimizer of one's own": "optimizer = dict(_delete_=True, type='SignOfConvert', lr=0.02, weights=(3, 4))\n",
    "accumulated": "data = dict(train=dict(n=16))\noptimizer_config = dict(type='GradientCumulativeOptimizerHook', cumulative_iters=2)\n",
    "gradients": "custom_hooks = [dict(type='GradientOfConvert')]\n",
    "a workflow": "workflow = [('train', 2), ('val', 1)]\n",
    "biases": "optimizer = dict(paramwise_cfg=dict(bias_decay_mult=0.0, bias_lr_mult=2.0))\noptimizer_config = dict(grad_clip=None)\n",
    "iterations": "runner = dict(_delete_=True, type='IterBasedRunner', max_iters=7)\nlr_config = dict(_delete_=True, policy='fixed')\nevaluation = dict(interval=100, by_epoch=False)\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch, module="parts_of_convert", parts=PARTS, base=BASE)


@pytest.mark.parametrize("variant", sample(VARIANTS, (0, 3, 5, 6, 7)))
def test_the_converted_config_trains_the_same_bits(folder: Path, variant: str) -> None:
    require_same_bits(folder, VARIANTS[variant])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"workflow = [('train', 3), ('val', 1)]; {ITERATIONS}", "a workflow of iterations"),
        ("runner = dict(type='RunnerOfConvert')\n", "the runner RunnerOfConvert"),
        ("momentum_config = dict(policy='step', step=2)\n", "momentum_config"),
        ("evaluation = dict(start=2)\n", "evaluation.start"),
        ("optimizer = dict(paramwise_cfg=dict(dwconv_decay_mult=0.5))\n", "dwconv_decay_mult=0.5 of paramwise_cfg"),
        ("lr_config = dict(_delete_=True, policy='cyclic')\n", "the policy cyclic"),
        ("lr_config = dict(_delete_=True, policy='FlatCosineAnnealing', min_lr=0)\n", "the policy FlatCosineAnnealing"),
        ("lr_config = dict(min_lr=0.01)\n", "min_lr=0.01 of the policy step"),
        ("custom_hooks = [dict(type='EMAHook', interval=2)]\n", "interval=2 of EMAHook"),
        ("custom_hooks = [dict(type='EMAHook', resume_from='a.pth')]\n", "resume_from='a.pth' of EMAHook"),
        ("custom_hooks = [dict(type='BufferOfConvert')]\n", "BufferOfConvert, which asks for runner.log_buffer.average"),
        ("data = dict(val=None); workflow = [('train', 1), ('val', 1)]\n", "a workflow that validates without data.val"),
        ("fp16 = dict(loss_scale=8.)\n", "a fixed loss scale"),
        ("model = dict(head=dict(_delete_=True, sizes=range(3)))\n", "model.head, a range, which YAML cannot hold"),
        ("custom_hooks = [dict(type='CheckpointHook', interval=3)]\n", "CheckpointHook, which asks for runner"),
    ],
)  # fmt: skip
def test_what_has_no_native_form_is_refused_with_its_line(folder: Path, text: str, what: str) -> None:
    (folder / "old.py").write_text("_base_ = './base.py'\n" + text)
    with pytest.raises(ConfigError, match=rf"old\.py:2: .*{re.escape(what)}.* has no native form"):
        convert(lower.read("old.py"))


@pytest.mark.parametrize(
    ("policy", "by_epoch"),
    [
        ("'CosineAnnealing', min_lr_ratio=0.01, warmup='linear', warmup_iters=7, warmup_ratio=0.1", False),
        ("'CosineAnnealing', min_lr=0.001, warmup='exp', warmup_iters=2, warmup_by_epoch=True", True),
        ("'poly', power=0.9, min_lr=0.001, warmup='constant', warmup_iters=3", True),
        ("'step', step=1, gamma=0.5, warmup='linear', warmup_iters=3", True),
        ("'step', step=6, gamma=0.5", False),
        ("'fixed', warmup='linear', warmup_iters=7", True),
        ("'LinearAnnealing', min_lr=0.01", True),
        ("'exp', gamma=0.9, warmup='linear', warmup_iters=4", False),
    ],
)
def test_learning_rates_follow_the_original_to_rounding(folder: Path, policy: str, by_epoch: bool) -> None:
    text = f"lr_config = dict(_delete_=True, policy={policy}, by_epoch={by_epoch})\n"
    (folder / "old.py").write_text(f"_base_ = './base.py'\n{text}custom_hooks = [dict(type='RatesOfConvert')]\n")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    seen, rates = [], []
    for config in ("old.py", "new.yaml"):
        weights(config, folder / config.partition(".")[0])
        seen = sys.modules["parts_of_convert"].SEEN
        rates.append(list(seen))
        seen.clear()
    assert len(rates[0]) == 20 and rates[1] == pytest.approx(rates[0], rel=1e-12)


def test_validation_epochs_of_a_workflow_record_what_the_model_logs(folder: Path) -> None:
    (folder / "old.py").write_text(
        "_base_ = './base.py'\nworkflow = [('train', 1), ('val', 1)]\nevaluation = dict(save_best='accuracy')\n"
    )
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    assert yaml.safe_load(Path("new.yaml").read_text())["train"]["workflow"] == [["train", 1], ["val", 1]]
    run = api.train("new.yaml", options=Options(folder=folder / "b", quiet=True))
    rows = [json.loads(line) for line in (folder / "b" / "metrics.jsonl").read_text().splitlines()]
    assert [set(row) & {"loss", "accuracy"} for row in rows if row.get("split") == "val"] == [
        {"loss"}, {"accuracy"}, {"loss"}, {"loss"}, {"accuracy"},
    ]  # fmt: skip
    assert run.step == 20


@pytest.mark.parametrize(("warm_up", "noted"), [("", True), (", warm_up=5", False), (", warm_up=6", True)])
def test_a_warm_up_of_the_average_is_noted_where_it_matters(folder: Path, warm_up: str, noted: bool) -> None:
    """It is a lower bound of the momentum that rises from 1 / warm_up."""
    (folder / "old.py").write_text(
        f"_base_ = './base.py'\ncustom_hooks = [dict(type='EMAHook', momentum=0.2{warm_up})]\n"
    )
    _, notes = convert(lower.read("old.py"))
    assert any("of EMAHook is left out" in note for note in notes) == noted


def test_an_average_over_accumulated_steps_is_noted(folder: Path) -> None:
    accumulated = VARIANTS["accumulated"] + "custom_hooks = [dict(type='EMAHook')]\n"
    (folder / "old.py").write_text(f"_base_ = './base.py'\n{accumulated}")
    _, notes = convert(lower.read("old.py"))
    assert any("once for each update" in note for note in notes)


def test_only_the_config_goes_to_the_standard_output(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "parts_of_convert.py").write_text(PARTS + "\nprint('hello')\n")
    (folder / "old.py").write_text("_base_ = './base.py'\n" + VARIANTS["biases"])
    assert main(["convert", "old.py"]) == 0
    said = capsys.readouterr()
    assert "hello" in said.err and yaml.safe_load(said.out)["model"]["type"] == "parts_of_convert.NetOfConvert"


def test_a_rule_stays_where_the_model_cannot_be_made(folder: Path) -> None:
    (folder / "old.py").write_text("_base_ = './base.py'\nmodel = dict(hidden='five')\n" + VARIANTS["biases"])
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    text = (folder / "new.yaml").read_text()
    assert "fits no parameter is an error here; the model cannot be made" in " ".join(text.replace("\n#", " ").split())
    assert len(yaml.safe_load(text)["optim"]["groups"]) == 2


def test_an_existing_file_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "new.yaml").write_text("mine")
    assert main(["convert", "base.py", "-o", "new.yaml"]) == 2
    assert (folder / "new.yaml").read_text() == "mine"
    assert main(["convert", "base.py"]) == 0
    assert "type: parts_of_convert.NetOfConvert" in capsys.readouterr().out


def test_everything_with_a_native_word_is_written_in_it(folder: Path) -> None:
    evaluation = "evaluation = dict(interval=2, metric='acc', save_best='acc', rule='less')\n"
    cosine = "lr_config = dict(_delete_=True, policy='CosineAnnealing', min_lr=0.001)\n"
    average = "custom_hooks = [dict(type='EMAHook', momentum=0.2)]\n"
    (folder / "old.py").write_text("_base_ = './base.py'\n" + evaluation + cosine + average)
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    config = yaml.safe_load((folder / "new.yaml").read_text())
    assert config["schedule"] == {"lr": [{"type": "Cosine", "to": 0.01, "by": "epoch"}]}
    assert config["checkpoint"] == {"every": "2ep", "keep": None, "best": "acc", "mode": "min"}
    assert config["hooks"][1:] == [{"type": "EMA", "momentum": 0.2}]
    native = api.train("new.yaml", options=Options(folder=folder / "b", quiet=True))
    records = [json.loads(line) for line in (folder / "b" / "metrics.jsonl").read_text().splitlines()]
    ours = [record["acc"] for record in records if record.get("split") == "val"]
    assert len(ours) == 2 and next(hook for hook in native.hooks if hook.name == "Checkpoint").best_value == min(ours)


def test_what_is_left_out_is_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loggers = "log_config = dict(hooks=[dict(type='MlflowLoggerHook'), dict(type='TensorboardLoggerHook')])\n"
    more = "custom_hooks = [dict(type='WandbLoggerHook')]\nauto_resume = True\nresume_from = 'epoch_1.pth'\n"
    (folder / "old.py").write_text("_base_ = './base.py'\n" + loggers + more)
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    assert capsys.readouterr().err == "its first lines have 6 notes on differences from old.py\n"
    text = (folder / "new.yaml").read_text()
    assert all(len(line) <= 100 for line in text.splitlines() if line.startswith("#"))
    notes = " ".join(text.replace("\n#", " ").split())
    for name in ("MlflowLoggerHook", "auto_resume", "resume_from"):
        assert f"{name} is left out" in notes
    assert "the weights are the same, bit by bit, where nothing is random" in notes
    assert "Wandb" not in (folder / "new.yaml").read_text().partition("\nname:")[2]


@pytest.mark.thorough  # starts a process of its own
def test_the_new_config_may_stand_anywhere(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its modules, one of them in a package, are found where the old config found them."""
    (folder / "package_of_convert").mkdir()
    (folder / "package_of_convert" / "__init__.py").write_text("")
    (folder / "package_of_convert" / "data.py").write_text("from .more import SIZE\nassert SIZE\n")
    (folder / "package_of_convert" / "more.py").write_text("SIZE = 3\n")
    modules = "custom_imports = dict(imports=['parts_of_convert', 'package_of_convert.data'])\n"
    (folder / "old.py").write_text("_base_ = './base.py'\n" + modules)
    (folder / "deep" / "er").mkdir(parents=True)
    assert main(["convert", "old.py", "-o", "deep/er/new.yaml"]) == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    zygote.etude("train", str(folder / "deep/er/new.yaml"), "--folder", "run", "-q", cwd=elsewhere, check=True)
    zygote.etude("check", str(folder / "deep/er/new.yaml"), cwd=elsewhere, check=True)


def test_a_converted_run_resumes_exactly(folder: Path) -> None:
    changes = "model = dict(dropout=0.4)\ndata = dict(train=dict(noisy=True), train_dataloader=dict(shuffle=True))\n"
    (folder / "old.py").write_text("_base_ = './base.py'\n" + changes + VARIANTS["a hook of one's own"])
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    whole = weights("new.yaml", folder / "whole")
    every = ["checkpoint.every=3step", "checkpoint.keep=null"]
    killed = zygote.etude("train", "new.yaml", *every, "--folder", "parts", "-q", "--chaos", "kill@step=8")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = api.train("new.yaml", every, options=Options(folder=folder / "parts", resume="", quiet=True))
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, whole[name]), name
