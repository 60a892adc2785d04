"""A converted config trains the same bits as the original where nothing is random."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from etude import api
from etude.build import Options
from etude.cli import main
from etude.errors import ConfigError
from etude_openmm.mmengine import lower
from etude_openmm.mmengine.convert import convert
from tests.across.converting import prepare, require_same_bits
from tests.sampling import sample

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
train_dataloader = dict(batch_size=4, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(type='ToyOfConvert', n=18))
train_cfg = dict(by_epoch=True, max_epochs=3)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9, weight_decay=0.01), clip_grad=dict(max_norm=0.5))
randomness = dict(seed=5)
"""
OWN = """\
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

SEEN = []


@HOOKS.register_module(force=True)
class NotesOfConvert(Hook):
    priority = 'LOW'

    def __init__(self, factor, settings=None):
        self.factor, self.settings = factor, settings

    def before_run(self, runner):
        SEEN.append(('before_run', self.settings))

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        SEEN.append(('before', runner.epoch, runner.iter, batch_idx, len(data_batch['inputs']), runner.optim_wrapper.param_groups[0]['lr']))

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        runner.model.fc2.bias.data += self.factor * runner.iter
        SEEN.append(('after', runner.iter, sorted(outputs)))

    def after_val_epoch(self, runner, metrics=None):
        SEEN.append(('validated', sorted(metrics)))


@HOOKS.register_module(force=True)
class AsksOfConvert(Hook):
    def before_run(self, runner):
        runner.visualizer.add_image('a', None)
"""
OWNED = (
    "custom_imports = dict(imports=['parts_of_convert_mme', 'own_of_convert_mme'], allow_failed_imports=False)\n"
    "custom_hooks = [dict(type='NotesOfConvert', factor=0.01, settings=dict(type='Any', sizes=(1, 2)))]\n"
)
VALIDATED = """
val_dataloader = dict(batch_size=4, sampler=dict(type='DefaultSampler', shuffle=False), dataset=dict(type='ToyOfConvert', n=9))
val_cfg = dict()
val_evaluator = dict(type='ErrorOfConvert', prefix='toy')
train_cfg = dict(max_epochs=6, val_interval=2)
default_hooks = dict(checkpoint=dict(type='CheckpointHook', interval=2, save_best='auto', rule='less'))
custom_hooks = [
    dict(type='EMAHook', momentum=0.1, update_buffers=True),
    dict(type='EarlyStoppingHook', monitor='toy/error', rule='less', min_delta=10., patience=2)]
"""
VARIANTS = {
    "epochs": "",
    "accumulated": "optim_wrapper = dict(accumulative_counts=2)\ntrain_dataloader = dict(dataset=dict(n=16), collate_fn=dict(type='default_collate'))\n",
    "paramwise": "optim_wrapper = dict(_delete_=True, optimizer=dict(type='AdamW', lr=0.01, betas=(0.8, 0.9), weight_decay=0.1), paramwise_cfg=dict(norm_decay_mult=0.0, custom_keys=dict(fc1=dict(lr_mult=0.1))))\n",
    "biases": "optim_wrapper = dict(clip_grad=None, optimizer=dict(lr=0.01), paramwise_cfg=dict(bias_decay_mult=0.0, bias_lr_mult=2.0))\n",
    "options of groups": "optim_wrapper = dict(clip_grad=None, optimizer=dict(_delete_=True, type='LARS', lr=0.1), paramwise_cfg=dict(custom_keys=dict(bias=dict(lars_exclude=True), gone=dict(lr_mult=0.))))\n",
    "iterations": "model = dict(init_cfg=None)\ntrain_cfg = dict(_delete_=True, by_epoch=False, max_iters=7)\ntrain_dataloader = dict(dataset=dict(n=16), sampler=dict(type='InfiniteSampler', shuffle=False))\n\n",
    "stepped": "param_scheduler = dict(type='StepLR', step_size=1)\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delitem(sys.modules, "own_of_convert_mme", raising=False)
    (tmp_path / "own_of_convert_mme.py").write_text(OWN)
    return prepare(tmp_path, monkeypatch, module="parts_of_convert_mme", parts=PARTS, base=BASE)


@pytest.mark.parametrize("variant", sample(VARIANTS, (0, 2, 3, 4)))
def test_the_converted_config_trains_the_same_bits(folder: Path, variant: str) -> None:
    require_same_bits(folder, VARIANTS[variant])


def converted(folder: Path, changes: str) -> dict[str, Any]:
    (folder / "old.py").write_text(f"_base_ = './base.py'\n{changes}")
    assert main(["convert", "old.py", "-o", "new.yaml", "--force"]) == 0
    config: dict[str, Any] = yaml.safe_load((folder / "new.yaml").read_text())
    return config


def test_everything_with_a_native_word_is_written_in_it(folder: Path) -> None:
    config = converted(folder, VALIDATED)
    assert config["model"]["type"] == "parts_of_convert_mme.NetOfConvert"
    assert config["optim"] == {
        "type": "SGD", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "differentiable": False, "clip_norm": 0.5,
    }  # fmt: skip
    assert config["metrics"] == [{"type": "parts_of_convert_mme.ErrorOfConvert", "prefix": "toy"}]
    assert config["train"] == {"epochs": 6, "seed": 5, "validate": "2ep"}
    assert config["data"]["val"].keys() == {"dataset", "batch_size", "shuffle", "collate"}
    assert config["checkpoint"] == {"every": "2ep", "keep": None, "best": "toy/error", "mode": "min"}
    assert [hook["type"] for hook in config["hooks"][1:]] == ["EMA", "EarlyStop"]
    run = api.train("new.yaml", options=Options(folder=folder / "run", quiet=True))
    assert run.step == 30  # stopped after three validations without a better one
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum("toy/error" in row for row in rows) == 3


def dicts(*schedulers: str) -> str:
    return f"param_scheduler = [{', '.join(f'dict({one})' for one in schedulers)}]\n"


WARM = "type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=4"


@pytest.mark.parametrize(
    "schedulers",
    [
        (WARM, "type='CosineAnnealingLR', by_epoch=True, begin=1, end=3"),
        (WARM, "type='MultiStepLR', begin=0, end=3, milestones=[1, 2], gamma=0.5"),
        (WARM, "type='CosineAnnealingLR', by_epoch=False, begin=4, eta_min=0.01"),
        ("type='LinearLR', start_factor=1.0, end_factor=0.5, by_epoch=False, begin=0, end=6", "type='PolyLR', power=0.9, eta_min=0.01, by_epoch=False, begin=6, end=15"),
        ("type='ConstantLR', factor=0.5, by_epoch=False, begin=0, end=5", "type='StepLR', step_size=2, by_epoch=False, begin=7, end=11"),
        ("type='ConstantLR', factor=0.5, by_epoch=True, end=3",),
        ("type='StepLR', step_size=1, end=2", "type='ExponentialLR', gamma=0.5, begin=2"),
        ("type='ExponentialLR', gamma=0.9, by_epoch=True, convert_to_iter_based=True",),
        ("type='StepLR', step_size=1, by_epoch=True, convert_to_iter_based=True",),
        ("type='CosineAnnealingLR', T_max=3, begin=0, end=3, convert_to_iter_based=True",),
    ],
)  # fmt: skip
def test_learning_rates_follow_the_original_to_rounding(folder: Path, schedulers: tuple[str, ...]) -> None:
    converted(folder, dicts(*schedulers) + OWNED)
    assert "later than in the original" not in (folder / "new.yaml").read_text()
    old, new = (seen_rates(folder, name) for name in ("old.py", "new.yaml"))
    assert len(old) == 15 and new == pytest.approx(old, rel=1e-6)


def test_an_end_that_epochs_cannot_say_is_noted(folder: Path) -> None:
    """The original reaches it in the step before ``end``, and only the data say which one that is."""
    warm = "type='LinearLR', start_factor=0.1, begin=0, end=2, convert_to_iter_based=True"
    config = converted(folder, dicts(warm, "type='CosineAnnealingLR', begin=2, end=3") + OWNED)
    assert config["schedule"]["lr"] == [
        {"type": "Linear", "from": 0.1, "to": 1.0, "until": "2ep"}, {"type": "Cosine", "to": 0.0, "by": "epoch"},
    ]  # fmt: skip
    assert "old.py:2: LinearLR ends one step later than in the original" in (folder / "new.yaml").read_text()
    old, new = (seen_rates(folder, name) for name in ("old.py", "new.yaml"))
    assert new[:9] == pytest.approx([0.1 * (0.1 + 0.9 * step / 10) for step in range(9)])
    assert old[:9] == pytest.approx([0.1 * (0.1 + 0.9 * step / 9) for step in range(9)])
    assert new[10:] == pytest.approx(old[10:])


def test_a_gap_between_phases_is_explained(folder: Path) -> None:
    converted(folder, dicts("type='LinearLR', begin=0, end=2", "type='CosineAnnealingLR', begin=2, end=3"))
    assert "from 1ep to 2ep the rate stays where the phase before arrives" in (folder / "new.yaml").read_text()


def seen_rates(folder: Path, config: str) -> list[float]:
    api.train(config, options=Options(folder=folder / config.partition(".")[0], quiet=True))
    seen = sys.modules["own_of_convert_mme"].SEEN
    rates = [entry[-1] for entry in seen if entry[0] == "before"]
    seen.clear()
    return rates


def test_hooks_of_your_own_act_behind_one_adapter(folder: Path) -> None:
    require_same_bits(folder, VALIDATED.partition("custom_hooks")[0] + OWNED)
    seen = sys.modules["own_of_convert_mme"].SEEN
    half = len(seen) // 2
    assert seen[:half] == seen[half:] and ("before_run", {"type": "Any", "sizes": (1, 2)}) in seen


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("default_hooks = dict(param_scheduler=None)\n", "param_scheduler=None"),
        ("efficient_conv_bn_eval = 'fc1'\n", "efficient_conv_bn_eval"),
        ("optim_wrapper = dict(paramwise_cfg=dict(flat_decay_mult=0.))\n", "flat_decay_mult=0.0 of paramwise_cfg"),
        ("param_scheduler = dict(type='OneCycleLR', eta_max=1., total_steps=9)\n", "the scheduler OneCycleLR"),
        ("train_dataloader = dict(batch_sampler=dict(type='Own'))\n", "train_dataloader.batch_sampler"),
        (dicts("type='LinearLR', end=1"), "LinearLR with a length of 1"),
        (dicts("type='CosineAnnealingLR', T_max=2, end=3"), "T_max, which is shorter than the scheduler,"),
        (
            dicts("type='LinearLR', end=2", "type='StepLR', step_size=1"),
            "a scheduler that begins before the one before it",
        ),
        (
            "optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(fc1=dict(lr_mult=0.1)))); "
            + dicts("type='PolyLR', eta_min=0.1"),
            "eta_min=0.1, one lowest rate for groups with other rates",
        ),
        (
            "custom_hooks = [dict(type='EMAHook', ema_type='StochasticWeightAverage')]\n",
            "ema_type=StochasticWeightAverage of EMAHook",
        ),
        ("custom_hooks = [dict(type='EMAHook', interval=3)]\n", "interval=3 of EMAHook"),
        ("train_cfg = dict(val_begin=3)\n", "train_cfg.val_begin"),
    ],
)
def test_what_has_no_native_form_is_refused_with_its_line(folder: Path, text: str, what: str) -> None:
    (folder / "old.py").write_text("_base_ = './base.py'\n" + text)
    with pytest.raises(ConfigError, match=rf"old\.py:2: .*{what}.* has no native form"):
        convert(lower.read("old.py"))


def test_a_hook_that_asks_for_more_than_a_run_has_is_refused(folder: Path) -> None:
    (folder / "old.py").write_text(
        "_base_ = './base.py'\n" + OWNED.replace("NotesOfConvert', factor=0.01", "AsksOfConvert'")
    )
    with pytest.raises(ConfigError, match=r"old\.py:3: the hook AsksOfConvert, which asks for runner.visualizer"):
        convert(lower.read("old.py"))
