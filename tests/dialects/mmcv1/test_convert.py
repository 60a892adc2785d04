"""A converted config trains the same bits as the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.cli import main
from etude.dialects.mmcv1 import lower
from etude.dialects.mmcv1.convert import convert
from etude.errors import ConfigError
from tests.dialects.converting import prepare, require_same_bits

PARTS = """\
import torch
from mmcls.models import CLASSIFIERS
from mmcls.datasets import DATASETS
from mmcv.runner import HOOKS, BaseModule, Hook


@DATASETS.register_module(force=True)
class ToyOfConvert(torch.utils.data.Dataset):
    def __init__(self, n, offset=0, test_mode=False):
        self.n, self.offset = n, offset

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = torch.tensor([((7 * (i + self.offset)) % 11) / 11, ((3 * i) % 5) / 5])
        return dict(img=x, gt_label=torch.tensor([((i * i) % 7) / 7]))

    def evaluate(self, results, logger=None, **kwargs):
        return {'accuracy': 1.0}


@CLASSIFIERS.register_module(force=True)
class NetOfConvert(BaseModule):
    def __init__(self, hidden, norm=False, head=None, init_cfg=None):
        super().__init__(init_cfg)
        self.fc1, self.norm, self.fc2 = torch.nn.Linear(2, hidden), torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, 1)

    def forward(self, img, gt_label=None, return_loss=True, **kwargs):
        out = self.fc2(self.norm(torch.tanh(self.fc1(img))))
        return ((out - gt_label) ** 2).mean() if return_loss else list(out.detach().numpy())

    def val_step(self, data, optimizer=None, **kwargs):
        return self.train_step(data)

    def train_step(self, data, optimizer=None, **kwargs):
        loss = self(**data)
        return dict(loss=loss, log_vars=dict(loss=loss.item()), num_samples=len(data['img']))


@HOOKS.register_module(force=True)
class ShrinkOfConvert(Hook):
    def __init__(self, by):
        self.by = by

    def after_train_iter(self, runner):
        if self.every_n_iters(runner, 3):
            with torch.no_grad():
                runner.model.fc2.bias.mul_(self.by)
"""
BASE = """\
custom_imports = dict(imports=['parts_of_convert'], allow_failed_imports=False)
model = dict(type='NetOfConvert', hidden=5, head=dict(type='Any', sizes=(1, 2)), init_cfg=dict(type='Normal', layer='Linear', std=0.5))
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='ToyOfConvert', n=18), val=dict(type='ToyOfConvert', n=6))
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
VARIANTS = {
    "step": "",
    "cosine with warmup": "lr_config = dict(_delete_=True, policy='CosineAnnealing', min_lr=0.001, warmup='linear', warmup_iters=4, warmup_ratio=0.1)\n",
    "momentum and a hook of one's own": "momentum_config = dict(policy='step', step=2, gamma=0.8)\ncustom_hooks = [dict(type='ShrinkOfConvert', by=0.5, priority='LOW')]\n",
    "paramwise": "optimizer = dict(type='AdamW', betas=(0.8, 0.9), _delete_=True, lr=0.01, weight_decay=0.1, paramwise_cfg=dict(norm_decay_mult=0.0, bias_lr_mult=2.0, custom_keys={'fc1': dict(lr_mult=0.1)}))\n",
    "validation in the workflow and an average": "workflow = [('train', 2), ('val', 1)]\nmodel = dict(norm=True)\ncustom_hooks = [dict(type='EMAHook', momentum=0.2, warm_up=2, priority='ABOVE_NORMAL')]\n",
    "iterations": "runner = dict(_delete_=True, type='IterBasedRunner', max_iters=7)\nlr_config = dict(_delete_=True, policy='poly', power=0.9, by_epoch=False)\nevaluation = dict(interval=100, by_epoch=False)\ndata = dict(train_dataloader=dict(shuffle=False))\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch, module="parts_of_convert", parts=PARTS, base=BASE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_converted_config_trains_the_same_bits(folder: Path, variant: str) -> None:
    require_same_bits(folder, VARIANTS[variant])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("fp16 = dict(loss_scale=512.)\n", "loss scaling"),
        ("workflow = [('val', 1), ('train', 1)]\n", "workflow"),
        ("optimizer_config = dict(type='GradientCumulativeOptimizerHook', cumulative_iters=2)\n", "optimizer hook"),
    ],
)
def test_what_cannot_be_said_with_the_same_result_is_told(folder: Path, text: str, what: str) -> None:
    (folder / "old.py").write_text("_base_ = './base.py'\n" + text)
    with pytest.raises(ConfigError, match=rf"old\.py:2: .*{what}.* cannot be converted"):
        convert(lower.read("old.py"))


def test_an_existing_file_is_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "new.yaml").write_text("mine")
    assert main(["convert", "base.py", "-o", "new.yaml"]) == 2
    assert (folder / "new.yaml").read_text() == "mine"
    assert main(["convert", "base.py"]) == 0
    assert "evaluation is left out" in capsys.readouterr().err
