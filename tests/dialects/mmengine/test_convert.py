"""A converted config trains the same bits as the original."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from etude import api
from etude.build import Options, build
from etude.cli import main
from etude.core.run import Run
from etude.dialects.mmengine import lower
from etude.dialects.mmengine.convert import convert
from etude.dialects.mmengine.hook_sources import RUNNER
from etude.dialects.mmengine.live.converted import Ema
from etude.dialects.mmengine.live.converted_view import view_of
from etude.errors import ConfigError, UserCodeError
from tests.dialects.converting import prepare, require_same_bits

PARTS = """\
import torch
from mmengine.model import BaseModel
from mmengine.evaluator import BaseMetric
from mmengine.registry import DATASETS, METRICS, MODELS


@METRICS.register_module(force=True)
class ErrorOfConvert(BaseMetric):
    def process(self, data_batch, data_samples):
        self.results += [float(abs(one - other)) for one, other in zip(data_samples, data_batch['target'])]

    def compute_metrics(self, results):
        return dict(error=sum(results) / len(results))


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
RANDOM = """\
import random

import numpy as np
import torch
from mmengine.registry import DATASETS, MODELS

from parts_of_convert_mme import NetOfConvert, ToyOfConvert


@DATASETS.register_module(force=True)
class NoisyOfConvert(ToyOfConvert):
    def __init__(self, n):
        super().__init__(n)
        self.shift = torch.rand(2)

    def __getitem__(self, i):
        item = super().__getitem__(i)
        item['inputs'] = item['inputs'] + self.shift + np.random.rand() + random.random() + torch.rand(2)
        return item


@MODELS.register_module(force=True)
class DroppedOfConvert(NetOfConvert):
    def forward(self, inputs, target, mode='tensor'):
        inputs = [torch.nn.functional.dropout(one, 0.3, self.training) for one in inputs]
        return super().forward(inputs, target, mode)
"""
RANDOMLY = """
custom_imports = dict(imports=['parts_of_convert_mme', 'random_of_convert_mme'], allow_failed_imports=False)
model = dict(type='DroppedOfConvert')
train_dataloader = dict(dataset=dict(type='NoisyOfConvert'))
"""
OWN = """\
import torch
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper, OptimWrapperDict
from mmengine.registry import DATA_SAMPLERS, HOOKS, MODELS, OPTIM_WRAPPER_CONSTRUCTORS

from parts_of_convert_mme import NetOfConvert

SEEN = []


@DATA_SAMPLERS.register_module(force=True)
class PairsOfConvert(torch.utils.data.BatchSampler):
    def __init__(self, sampler, batch_size, skip):
        super().__init__(sampler, batch_size, drop_last=True)
        self.skip = skip

    def __iter__(self):
        return (batch for n, batch in enumerate(super().__iter__()) if n >= self.skip)

    def __len__(self):
        return super().__len__() - self.skip


@OPTIM_WRAPPER_CONSTRUCTORS.register_module(force=True)
class TwoOfConvert:
    def __init__(self, optim_wrapper_cfg, paramwise_cfg=None):
        self.cfg = optim_wrapper_cfg

    def __call__(self, model):
        return OptimWrapperDict(
            first=OptimWrapper(torch.optim.SGD(model.fc1.parameters(), lr=self.cfg['first']['optimizer']['lr'])),
            second=OptimWrapper(torch.optim.Adam(model.fc2.parameters(), lr=self.cfg['second']['optimizer']['lr'])))


@MODELS.register_module(force=True)
class TwiceOfConvert(NetOfConvert):
    def train_step(self, data, optim_wrapper):
        logs = dict()
        for name in ('first', 'second'):
            optim_wrapper.zero_grad()
            loss = self(**self.data_preprocessor(data, True), mode='loss')['loss']
            optim_wrapper[name].update_params(loss)
            logs[f'{name}_loss'] = loss.detach()
        return logs


@HOOKS.register_module(force=True)
class NotesOfConvert(Hook):
    priority = 'LOW'

    def __init__(self, stop=None):
        self.stop = stop

    def note(self, point, runner, *more):
        SEEN.append((point, runner.epoch, runner.iter, runner.max_epochs, runner.max_iters,
                     runner.optim_wrapper.param_groups[0]['lr'], *more))

    def before_run(self, runner):
        self.note('before_run', runner)

    def before_train(self, runner):
        self.note('before_train', runner)

    def before_train_epoch(self, runner):
        self.note('before_train_epoch', runner)

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        with torch.no_grad():
            runner.model.fc2.bias += 0.01 * runner.iter
        self.note('before_train_iter', runner, batch_idx, len(data_batch['inputs']))

    def _after_iter(self, runner, batch_idx, data_batch=None, outputs=None, mode='train'):
        self.note(f'after_{mode}_iter', runner, batch_idx, len(outputs))
        if mode == 'train':
            runner.message_hub.update_scalar('train/twice', 2 * float(outputs['loss'].detach()))

    def after_train_epoch(self, runner):
        self.note('after_train_epoch', runner, round(float(runner.message_hub.get_scalar('train/loss').current()), 6))
        runner.train_loop.stop_training = self.stop == runner.epoch

    def after_val_epoch(self, runner, metrics=None):
        self.note('after_val_epoch', runner, sorted(metrics))

    def after_val(self, runner):
        self.note('after_val', runner)

    def after_train(self, runner):
        self.note('after_train', runner)

    def after_run(self, runner):
        self.note('after_run', runner)
"""
OWNED = "custom_imports = dict(imports=['parts_of_convert_mme', 'own_of_convert_mme'], allow_failed_imports=False)\n"
CONSTRUCTED = {
    "several": "model = dict(type='TwiceOfConvert')\noptim_wrapper = dict(_delete_=True, constructor='TwoOfConvert', first=dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=0.1)), second=dict(type='OptimWrapper', optimizer=dict(type='Adam', lr=0.01)))\nparam_scheduler = dict(_delete_=True, first=[dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=4)], second=[dict(type='StepLR', step_size=1)])\n",
    "by rules": "optim_wrapper = dict(optimizer=dict(_delete_=True, type='LARS', lr=0.2, weight_decay=0.01), paramwise_cfg=dict(flat_decay_mult=0.5, custom_keys={'bias': dict(decay_mult=0., lars_exclude=True)}))\nauto_scale_lr = dict(enable=True, base_batch_size=8)\n",
    "own batches": "train_dataloader = dict(batch_sampler=dict(type='PairsOfConvert', skip=1))\n",
    "one order": "default_hooks = dict(sampler_seed=None)\n",
    "fewer batches": "train_dataloader = dict(num_batch_per_epoch=3)\n",
}  # fmt: skip
VARIANTS = {
    "epochs": "",
    "accumulated": "optim_wrapper = dict(accumulative_counts=3)\ntrain_dataloader = dict(collate_fn=dict(type='default_collate'))\n",
    "paramwise": "optim_wrapper = dict(_delete_=True, optimizer=dict(type='AdamW', lr=0.01, betas=(0.8, 0.9), weight_decay=0.1), paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(fc1=dict(lr_mult=0.1))))\n",
    "epochs of one": "train_cfg = dict(_delete_=True, by_epoch=False, max_iters=7)\nparam_scheduler = [dict(type='StepLR', step_size=1), dict(type='CosineAnnealingLR', end=2, convert_to_iter_based=True)]\n",
    "iterations": "train_cfg = dict(_delete_=True, by_epoch=False, max_iters=7)\ntrain_dataloader = dict(sampler=dict(type='InfiniteSampler'))\nparam_scheduler = [dict(type='PolyLR', by_epoch=False, power=0.9, end=7)]\n",
    "mixed": "optim_wrapper = dict(type='AmpOptimWrapper', loss_scale='dynamic', dtype='bfloat16', accumulative_counts=2)\n",
}  # fmt: skip
PURE = """\
from mmengine.dataset import DefaultSampler
from mmengine.model import MomentumAnnealingEMA
from mmengine.hooks import EMAHook
from mmengine.optim import AmpOptimWrapper, LinearLR
from torch.optim import SGD

from parts_of_convert_mme import NetOfConvert

model = dict(type=NetOfConvert, hidden=5)
train_dataloader = dict(batch_size=4, sampler=dict(type=DefaultSampler, shuffle=True), dataset=dict(type='ToyOfConvert', n=18))
train_cfg = dict(by_epoch=True, max_epochs=2)
optim_wrapper = dict(type=AmpOptimWrapper, optimizer=dict(type=SGD, lr=0.1))
param_scheduler = dict(type=LinearLR, start_factor=0.1, by_epoch=False, end=4)
custom_hooks = [dict(type=EMAHook, ema_type=MomentumAnnealingEMA)]
randomness = dict(seed=5)
"""
VALIDATED = """
val_dataloader = dict(batch_size=4, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(type='ToyOfConvert', n=9))
val_cfg = dict()
val_evaluator = dict(type='ErrorOfConvert', prefix='toy')
train_cfg = dict(max_epochs=6, val_interval=2)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=2, save_best='toy/error', rule='less'))
"""
HOOKED = {
    "validated": "default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=2, save_best='auto', rule='less'))\n",
    "averaged": "custom_hooks = [dict(type='EMAHook', momentum=0.1, begin_iter=3)]\n",
    "annealed": "custom_hooks = [dict(type='EMAHook', ema_type='MomentumAnnealingEMA', gamma=5, update_buffers=True)]\n",
    "ended early": "custom_hooks = [dict(type='EarlyStoppingHook', monitor='toy/error', rule='less', min_delta=10., patience=2)]\n",
    "begun late": "train_cfg = dict(max_epochs=5, val_begin=3)\n",
    "ever more often": "train_cfg = dict(dynamic_intervals=[(4, 1)])\n",
    "plateau": "param_scheduler = dict(_delete_=True, type='ReduceOnPlateauLR', monitor='toy/error', rule='less', patience=0, factor=0.5, threshold=0.9)\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch, module="parts_of_convert_mme", parts=PARTS, base=BASE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_converted_config_trains_the_same_bits(folder: Path, variant: str) -> None:
    require_same_bits(folder, VARIANTS[variant])


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delitem(sys.modules, "own_of_convert_mme", raising=False)
    (folder / "own_of_convert_mme.py").write_text(OWN)
    return folder


@pytest.mark.parametrize("variant", CONSTRUCTED)
def test_own_optimizers_and_batches_come_along(own: Path, variant: str) -> None:
    require_same_bits(own, OWNED + CONSTRUCTED[variant])


@pytest.mark.parametrize(
    "more",
    [
        VALIDATED + "custom_hooks = [dict(type='NotesOfConvert')]\n",
        VALIDATED + "custom_hooks = [dict(type='NotesOfConvert', stop=2)]\n",
        VALIDATED.replace("max_epochs=6, val_interval=2", "_delete_=True, by_epoch=False, max_iters=7, val_interval=3")
        + "custom_hooks = [dict(type='NotesOfConvert', priority=10)]\n",
    ],
    ids=["epochs", "stopped", "iterations"],
)
def test_hooks_of_ones_own_see_the_same(own: Path, more: str) -> None:
    (own / "old.py").write_text(f"_base_ = './base.py'\n{OWNED}{more}")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    old = trained("old.py", own / "a")
    seen = sys.modules["own_of_convert_mme"].SEEN
    first = list(seen)
    seen.clear()
    new = trained("new.yaml", own / "b")
    assert seen == first
    require_view(new)
    require_equal(old.model.state_dict(), new.model.state_dict())
    assert any("twice" in row for row in rows(own / "b"))


@pytest.mark.parametrize(
    "more",
    [
        VALIDATED,
        VARIANTS["iterations"],
        VARIANTS["iterations"].replace("InfiniteSampler", "DefaultSampler"),
        "train_dataloader = dict(num_workers=2)\n",
        "train_dataloader = dict(num_workers=2, persistent_workers=True, drop_last=True)\n",
    ],
    ids=["epochs", "iterations", "passes", "workers", "persistent"],
)
def test_random_numbers_of_samples_and_layers_are_the_same(folder: Path, more: str) -> None:
    (folder / "random_of_convert_mme.py").write_text(RANDOM)
    noisy = VALIDATED.replace("ToyOf", "NoisyOf") if more is VALIDATED else more
    require_same_bits(folder, RANDOMLY + noisy)


def test_a_pure_python_config_brings_its_modules_along(folder: Path) -> None:
    (folder / "old.py").write_text(PURE)
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    require_equal(
        trained("old.py", folder / "a").model.state_dict(), trained("new.yaml", folder / "b").model.state_dict()
    )


@pytest.mark.parametrize("variant", HOOKED)
def test_validation_averages_and_patience_come_along(folder: Path, variant: str) -> None:
    (folder / "old.py").write_text(f"_base_ = './base.py'\n{VALIDATED}{HOOKED[variant]}")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    old, new = trained("old.py", folder / "a"), trained("new.yaml", folder / "b")
    require_equal(old.model.state_dict(), new.model.state_dict())
    assert old.runner.message_hub.get_scalar("val/toy/error").data[0].tolist() == [
        row["toy/error"] for row in rows(folder / "b") if "toy/error" in row
    ]
    assert old.step == new.step
    assert any(hook.name == "Checkpoint" and (hook.best, hook.mode) == ("toy/error", "min") for hook in new.hooks)
    averages = [hook for hook in new.hooks if isinstance(hook, Ema)]
    assert len(averages) == variant.startswith("a")
    for hook in averages:
        own = next(hook for hook in old.runner.hooks if type(hook).__name__ == "EMAHook")
        require_equal(own.ema_model.state_dict(), hook.average.state_dict())


def test_a_converted_average_goes_on_when_it_is_resumed(folder: Path) -> None:
    (folder / "old.py").write_text(f"_base_ = './base.py'\n{VALIDATED}{HOOKED['averaged']}{VARIANTS['mixed']}")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    whole = trained("new.yaml", folder / "whole")
    cut = api.train("new.yaml", options=Options(folder=folder / "part", quiet=True), trial=api.Trial(max_seconds=0.0))
    rest = api.train("new.yaml", options=Options(folder=folder / "part", resume="", quiet=True))
    assert 0 < cut.step < rest.step
    require_equal(whole.model.state_dict(), rest.model.state_dict())
    one, other = (next(hook for hook in run.hooks if isinstance(hook, Ema)) for run in (whole, rest))
    require_equal(one.average.state_dict(), other.average.state_dict())


@pytest.mark.parametrize("more", ["", VARIANTS["iterations"]], ids=["epochs", "iterations"])
def test_converted_random_numbers_go_on_when_it_is_resumed(folder: Path, more: str) -> None:
    (folder / "random_of_convert_mme.py").write_text(RANDOM)
    (folder / "old.py").write_text(f"_base_ = './base.py'\n{RANDOMLY}{more}")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    whole = trained("new.yaml", folder / "whole")
    cut = api.train("new.yaml", options=Options(folder=folder / "part", quiet=True), trial=api.Trial(max_seconds=0.0))
    rest = api.train("new.yaml", options=Options(folder=folder / "part", resume="", quiet=True))
    assert 0 < cut.step < rest.step
    require_equal(whole.model.state_dict(), rest.model.state_dict())


def test_converted_hooks_and_several_optimizers_go_on_when_it_is_resumed(own: Path) -> None:
    changes = CONSTRUCTED["several"] + "custom_hooks = [dict(type='SimSiamHook', fix_pred_lr=False, lr=1.)]\n"
    (own / "old.py").write_text(f"_base_ = './base.py'\n{OWNED}{changes}")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    whole = trained("new.yaml", own / "whole")
    cut = api.train("new.yaml", options=Options(folder=own / "part", quiet=True), trial=api.Trial(max_seconds=0.0))
    rest = api.train("new.yaml", options=Options(folder=own / "part", resume="", quiet=True))
    assert 0 < cut.step < rest.step
    assert list(rest.optimizers) == ["first", "second"]
    require_equal(whole.model.state_dict(), rest.model.state_dict())


def require_view(run: Run) -> None:
    """Hooks are given what ``convert`` promises them; the rest is told."""
    view = view_of(run)
    for name, inner in RUNNER.items():
        assert all(hasattr(getattr(view, name), word) for word in inner), name
    assert not hasattr(view, "cfg")
    with pytest.raises(UserCodeError, match=r"asks for runner\.visualizer\.add_image"):
        view.visualizer.add_image


def trained(config: str, folder: Path, *changes: str) -> Any:
    options = Options(folder=folder, quiet=True)
    if config.endswith(".yaml"):
        return api.train(config, changes, options=options)
    run = build(api.load_plan(config)[0], options)
    run.loop(run)
    return run


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def require_equal(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> None:
    assert list(one) == list(other)
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("custom_hooks = [dict(type='ProfilerHook')]\n", "ProfilerHook"),
        ("custom_hooks = [dict(type='NaiveVisualizationHook')]\n", "NaiveVisualizationHook, which asks for runner.vis"),
        ("default_hooks = dict(param_scheduler=None)\n", "param_scheduler=None"),
        ("efficient_conv_bn_eval = 'fc1'\n", "efficient_conv_bn_eval"),
    ],
)
def test_what_cannot_be_said_with_the_same_result_is_told(folder: Path, text: str, what: str) -> None:
    (folder / "old.py").write_text("_base_ = './base.py'\n" + text)
    with pytest.raises(ConfigError, match=rf"old\.py:2: .*{what}.* cannot be converted"):
        convert(lower.read("old.py"))
