"""Every snippet of the seed about customising MMSelfSup's runtime, run on small parts."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import etude
from etude.building.options import Options
from etude.dialects import imports

imports.install()

HOOK = '''
from typing import Optional, Sequence

from mmengine.hooks import Hook

from mmselfsup.registry import HOOKS
from mmselfsup.utils import get_model


@HOOKS.register_module()
class NewHook(Hook):
    """Docstring for NewHook.
    """

    def __init__(self, a: int, b: int) -> None:
        self.a = a
        self.b = b

    def before_train_iter(self,
                          runner,
                          batch_idx: int,
                          data_batch: Optional[Sequence[dict]] = None) -> None:
        cur_iter = runner.iter
        get_model(runner.model).hyper_parameter = self.a * cur_iter + self.b
        get_model(runner.model).seen.append((batch_idx, get_model(runner.model).hyper_parameter))
'''

PARTS = """
import torch
from torch import nn
from mmengine.model import BaseModel
from mmselfsup.registry import DATASETS, MODELS

from .new_hook import NewHook

__all__ = ["NewHook"]


@DATASETS.register_module()
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return dict(inputs=torch.full((4,), float(index % 3)))


@MODELS.register_module()
class Net(BaseModel):
    def __init__(self):
        super().__init__()
        self.cls_token = nn.Parameter(torch.ones(4))
        self.pos_embed = nn.Parameter(torch.ones(4))
        self.mask_token = nn.Parameter(torch.ones(4))
        self.ln = nn.LayerNorm(4)
        self.bn = nn.BatchNorm1d(4)
        self.downsample = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        self.fc = nn.Linear(4, 1)
        self.seen = []

    def forward(self, inputs, mode="tensor"):
        x = torch.stack(inputs) * self.cls_token + self.pos_embed * self.mask_token
        return dict(loss=self.fc(self.downsample(self.bn(self.ln(x)))).pow(2).mean())
"""

REST = """
custom_imports = dict(imports=["selfsup_project"], allow_failed_imports=False)
default_scope = "mmselfsup"
model = dict(type="Net")
train_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler", shuffle=False), dataset=dict(type="Numbers"))
default_hooks = dict(logger=dict(type="LoggerHook", interval=2))
randomness = dict(seed=0)
"""

LOOP = "train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=2)\n"
SGD = """
optimizer = dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0001)
optim_wrapper = dict(type='OptimWrapper', optimizer=optimizer)
"""
AMP = SGD.replace("'OptimWrapper'", "'AmpOptimWrapper'")
MAE = """
optimizer = dict(
    type='AdamW', lr=1.5e-4 * 4096 / 256, betas=(0.9, 0.95), weight_decay=0.05)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=optimizer,
    paramwise_cfg=dict(
        custom_keys={
            'ln': dict(decay_mult=0.0),
            'bias': dict(decay_mult=0.0),
            'pos_embed': dict(decay_mult=0.),
            'mask_token': dict(decay_mult=0.),
            'cls_token': dict(decay_mult=0.)
        }))
"""
SIMCLR = """
optimizer = dict(type='LARS', lr=0.3, momentum=0.9, weight_decay=1e-6)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=optimizer,
    paramwise_cfg=dict(
        custom_keys={
            'bn': dict(decay_mult=0, lars_exclude=True),
            'bias': dict(decay_mult=0, lars_exclude=True),
            # bn layer in ResNet block downsample module
            'downsample.1': dict(decay_mult=0, lars_exclude=True),
        }))
"""
SCHEDULE = """
param_scheduler = [
    dict(
        type='LinearLR',
        start_factor=1e-4,
        by_epoch=True,
        begin=0,
        end=40,
        convert_to_iter_based=True),
    dict(
        type='CosineAnnealingLR',
        T_max=360,
        by_epoch=True,
        begin=40,
        end=400,
        convert_to_iter_based=True)
]
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path) -> Iterator[None]:
    """The user's own package beside the config: the hook's file, and an ``__init__`` that imports it."""
    folder = tmp_path / "selfsup_project"
    folder.mkdir()
    (folder / "new_hook.py").write_text(HOOK)
    (folder / "__init__.py").write_text(PARTS)
    before = list(sys.path)
    yield
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("selfsup_project")]:
        del sys.modules[name]
    for registry, entries in {"HOOKS": ["NewHook"], "DATASETS": ["Numbers"], "MODELS": ["Net"]}.items():
        for entry in entries:
            getattr(sys.modules["mmselfsup.registry"], registry).module_dict.pop(entry, None)


def train(folder: Path, *pieces: str) -> Any:
    """Train the config made of these pieces by the same way as the command line."""
    config = folder / "config.py"
    config.write_text(textwrap.dedent(REST + "\n".join(pieces)))
    return etude.train(config, options=Options(folder=folder / "work", quiet=True)).runner


def decays(runner: Any) -> dict[str, dict[str, Any]]:
    groups = runner.optim_wrapper.optimizer.param_groups
    named = runner.model.named_parameters()
    return {name: next(g for g in groups if any(p is q for q in g["params"])) for name, p in named}


def test_the_loop_of_the_config_trains_its_epochs(tmp_path: Path) -> None:
    runner = train(tmp_path, LOOP, SGD)
    assert type(runner.train_loop).__name__ == "EpochBasedTrainLoop"
    assert (runner.epoch, runner.iter) == (2, 8)
    assert {"epoch_1.pth", "epoch_2.pth", "last_checkpoint"} <= {path.name for path in (tmp_path / "work").iterdir()}


@pytest.mark.parametrize("priority", ["", ", priority='ABOVE_NORMAL'"])
def test_the_custom_hook_changes_the_hyper_parameter(tmp_path: Path, priority: str) -> None:
    hooks = f"a_value, b_value = 3, 1\ncustom_hooks = [\n    dict(type='NewHook', a=a_value, b=b_value{priority})\n]\n"
    runner = train(tmp_path, LOOP, SGD, hooks)
    assert runner.model.seen == [(i % 4, 3 * i + 1) for i in range(8)]
    order = [type(hook).__name__ for hook in runner.hooks]
    assert (order.index("NewHook") < order.index("IterTimerHook")) == bool(priority)
    hook = next(hook for hook in runner.hooks if type(hook).__name__ == "NewHook")
    assert hook.priority == ("ABOVE_NORMAL" if priority else "NORMAL")


def test_mixed_precision_scales_its_loss_dynamically(tmp_path: Path) -> None:
    runner = train(tmp_path, LOOP, AMP)
    assert type(runner.optim_wrapper).__name__ == "AmpOptimWrapper"
    assert runner.optim_wrapper.loss_scaler.get_scale() > 0
    assert runner.iter == 8


def test_the_mae_config_spares_what_it_names_from_decay(tmp_path: Path) -> None:
    groups = decays(train(tmp_path, LOOP, MAE))
    spared = ("ln", "bias", "pos_embed", "mask_token", "cls_token")
    for name, group in groups.items():
        assert group["weight_decay"] == (0 if any(key in name for key in spared) else 0.05), name
        assert group["lr"] == pytest.approx(1.5e-4 * 4096 / 256)


def test_the_simclr_config_leaves_norms_and_biases_out_of_lars(tmp_path: Path) -> None:
    groups = decays(train(tmp_path, LOOP, SIMCLR))
    for name, group in groups.items():
        excluded = any(key in name for key in ("bn", "bias", "downsample.1"))
        assert bool(group.get("lars_exclude", False)) == excluded, name
        assert group["weight_decay"] == (0 if excluded else 1e-6)


def test_the_schedule_counts_epochs_in_iterations(tmp_path: Path) -> None:
    runner = train(tmp_path, LOOP.replace("max_epochs=2", "max_epochs=2"), SGD, SCHEDULE)
    warmup, cosine = runner.param_schedulers
    assert (warmup.by_epoch, warmup.begin, warmup.end) == (False, 0, 160)
    assert (cosine.begin, cosine.end, cosine.T_max) == (160, 1600, 1440)
    assert runner.optim_wrapper.get_lr()["lr"][0] == pytest.approx(0.01 * (1e-4 + (1 - 1e-4) * 8 / 159), rel=1e-9)
