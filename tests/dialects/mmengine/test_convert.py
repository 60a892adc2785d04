"""A converted config trains the same bits as the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.dialects.mmengine import lower
from etude.dialects.mmengine.convert import convert
from etude.errors import ConfigError
from tests.dialects.converting import prepare, require_same_bits

PARTS = """\
import torch
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, MODELS


@DATASETS.register_module(force=True)
class ToyOfConvert(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return dict(inputs=torch.tensor([((7 * i) % 11) / 11, ((3 * i) % 5) / 5]), target=torch.tensor([((i * i) % 7) / 7]))


@MODELS.register_module(force=True)
class NetOfConvert(BaseModel):
    def __init__(self, hidden, head=None, init_cfg=None):
        super().__init__(init_cfg=init_cfg)
        self.fc1, self.norm, self.fc2 = torch.nn.Linear(2, hidden), torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, 1)

    def forward(self, inputs, target, mode='tensor'):
        out = self.fc2(self.norm(torch.tanh(self.fc1(torch.stack(list(inputs))))))
        return dict(loss=((out - torch.stack(list(target))) ** 2).mean()) if mode == 'loss' else list(out)
"""
BASE = """\
custom_imports = dict(imports=['parts_of_convert_mme'], allow_failed_imports=False)
default_scope = 'mmengine'
model = dict(type='NetOfConvert', hidden=5, head=dict(type='Any', sizes=(1, 2)), init_cfg=dict(type='Normal', layer='Linear', std=0.5))
train_dataloader = dict(batch_size=4, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=True), dataset=dict(type='ToyOfConvert', n=18))
train_cfg = dict(by_epoch=True, max_epochs=3)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.01), clip_grad=dict(max_norm=0.5))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=4),
    dict(type='CosineAnnealingLR', by_epoch=True, begin=1, end=3)]
randomness = dict(seed=5)
"""
VARIANTS = {
    "epochs": "",
    "accumulated": "optim_wrapper = dict(accumulative_counts=3)\ntrain_dataloader = dict(collate_fn=dict(type='default_collate'))\n",
    "paramwise": "optim_wrapper = dict(_delete_=True, optimizer=dict(type='AdamW', lr=0.01, betas=(0.8, 0.9), weight_decay=0.1), paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(fc1=dict(lr_mult=0.1))))\n",
    "iterations": "train_cfg = dict(_delete_=True, by_epoch=False, max_iters=7)\ntrain_dataloader = dict(sampler=dict(type='InfiniteSampler'))\nparam_scheduler = [dict(type='PolyLR', by_epoch=False, power=0.9, end=7)]\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch, module="parts_of_convert_mme", parts=PARTS, base=BASE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_converted_config_trains_the_same_bits(folder: Path, variant: str) -> None:
    require_same_bits(folder, VARIANTS[variant])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("optim_wrapper = dict(type='AmpOptimWrapper')\n", "AmpOptimWrapper"),
        ("custom_hooks = [dict(type='EMAHook')]\n", "EMAHook"),
        ("param_scheduler = dict(_delete_=True, a=[])\n", "schedulers by optimizer"),
    ],
)
def test_what_cannot_be_said_with_the_same_result_is_told(folder: Path, text: str, what: str) -> None:
    (folder / "old.py").write_text("_base_ = './base.py'\n" + text)
    with pytest.raises(ConfigError, match=rf"old\.py:2: .*{what}.* cannot be converted"):
        convert(lower.read("old.py"))
