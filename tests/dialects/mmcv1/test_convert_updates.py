"""Converted configs with other updates than mmcv's plain one train the same bits, over a resume too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from etude import api
from etude.build import Options, build
from etude.cli import main
from tests.dialects.converting import prepare, require_same_bits, weights
from tests.dialects.mmcv1.test_convert import BASE, PARTS

MORE = """

@OPTIMIZER_BUILDERS.register_module(force=True)
class TwoOfConvert:
    def __init__(self, optimizer_cfg, paramwise_cfg=None):
        self.optimizer_cfg = optimizer_cfg

    def __call__(self, model):
        return {
            name: OPTIMIZERS.build(dict(cfg, params=list(getattr(model, name).parameters())))
            for name, cfg in self.optimizer_cfg.items()
        }


@CLASSIFIERS.register_module(force=True)
class NetOfTwo(NetOfConvert):
    def train_step(self, data, optimizer=None, **kwargs):
        loss = self(**data)
        for one in optimizer.values():
            one.zero_grad()
        loss.backward()
        for one in optimizer.values():
            one.step()
        return dict(log_vars=dict(loss=loss.item()), num_samples=len(data['img']))


@HOOKS.register_module(force=True)
class EarlyOfConvert(Hook):
    def after_train_iter(self, runner):
        runner.outputs['loss'] = runner.outputs['loss'] * (2 if runner.iter % 2 or self.is_last_iter(runner) else 1)
        runner.log_buffer.update(dict(doubled=1.0))


@HOOKS.register_module(force=True)
class LaterOfConvert(Hook):
    def before_epoch(self, runner):
        with torch.no_grad():
            runner.model.fc1.bias.add_(0.05 * (1 + runner.epoch))

    def after_epoch(self, runner):
        with torch.no_grad():
            runner.model.fc2.bias.add_(0.1)
"""
BY_STEPS = (
    "runner = dict(_delete_=True, type='IterBasedRunner', max_iters=11)\nevaluation = dict(interval=3)\n"
    "lr_config = dict(step=[4, 8])\n"
)
CUMULATIVE = "optimizer_config = dict(type='GradientCumulative{}OptimizerHook', cumulative_iters=3)\n"
TWO = (
    "model = dict(type='NetOfTwo')\noptimizer_config = None\n"
    "optimizer = dict(_delete_=True, constructor='TwoOfConvert', fc1=dict(type='SGD', lr=0.1), fc2=dict(type='Adam'))\n"
)
WARM = "lr_config = dict(_delete_=True, policy='CosineAnnealing', min_lr=0.001, warmup='linear', warmup_iters={}, warmup_by_epoch={})\n"
VARIANTS = {
    "half precision": "fp16 = dict(loss_scale=512.)\n",
    "accumulation": CUMULATIVE.format(""),
    "a hook before the update": "custom_hooks = [dict(type='EarlyOfConvert', priority='HIGH')]\n",
    "a hook at the evaluation's priority": "custom_hooks = [dict(type='LaterOfConvert', priority='LOW')]\n",
    "hooks and policies by iterations": "custom_hooks = [dict(type='LaterOfConvert')]\n" + BY_STEPS,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(tmp_path, monkeypatch, module="parts_of_convert", parts=PARTS + MORE, base=BASE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_converted_config_trains_the_same_bits(folder: Path, variant: str) -> None:
    require_same_bits(folder, VARIANTS[variant])


def require_same_after_resume(folder: Path, changes: str, *, step: int) -> Any:
    """As it is, converted, and converted and gone on with from the checkpoint of ``step``: one result."""
    (folder / "old.py").write_text("_base_ = './base.py'\n" + changes)
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    old = weights("old.py", folder / "a")
    every = [f"checkpoint.every={step}step", "checkpoint.keep=null"]
    whole = api.train("new.yaml", every, options=Options(folder=folder / "b", quiet=True))
    path = str(folder / "b" / "checkpoints" / f"step-{step:09d}")
    resumed = api.train("new.yaml", every, options=Options(folder=folder / "c", resume=path, quiet=True))
    for run in (whole, resumed):
        state = run.model.state_dict()
        assert list(state) == [name.removeprefix("module.") for name in old]
        for name, value in old.items():
            assert torch.equal(state[name.removeprefix("module.")], value), name
    return resumed


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        (CUMULATIVE.format("Fp16"), 7),
        (TWO, 7),
        ("fp16 = dict(loss_scale='dynamic')\n" + WARM.format(8, False), 6),
        ("custom_hooks = [dict(type='LaterOfConvert', priority='LOW')]\n" + WARM.format(2, True), 7),
    ],
    ids=["accumulation in half precision", "several optimizers", "half precision and warmup", "what begins an epoch"],
)
def test_a_run_goes_on_in_the_middle_of_an_epoch(folder: Path, changes: str, step: int) -> None:
    if changes == TWO:  # nothing is to be restored into what stands for the constructor's optimizers
        assert set(require_same_after_resume(folder, changes, step=step).optimizers) == {"fc1", "fc2"}
    else:
        require_same_after_resume(folder, changes, step=step)


def test_the_scale_of_the_loss_travels_in_checkpoints(folder: Path) -> None:
    """It is idle without CUDA, so one that is at work here is put in its place."""
    (folder / "old.py").write_text("_base_ = './base.py'\nfp16 = dict(loss_scale=dict(init_scale=8.))\n")
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    runs = [build(api.load_plan("new.yaml")[0], Options(quiet=True)) for _ in range(2)]
    for run, scale in zip(runs, (4.0, 32.0), strict=True):
        run.update.hook.loss_scaler = torch.amp.GradScaler("cpu", init_scale=scale)  # type: ignore[attr-defined]
    parts = [run.parts()["hook.Fp16OptimizerHook"] for run in runs]
    parts[1].load_state_dict(parts[0].state_dict())
    assert runs[1].update.hook.loss_scaler.get_scale() == 4.0  # type: ignore[attr-defined]


def test_what_hooks_put_into_the_log_is_recorded(folder: Path) -> None:
    (folder / "old.py").write_text("_base_ = './base.py'\n" + VARIANTS["a hook before the update"])
    assert main(["convert", "old.py", "-o", "new.yaml"]) == 0
    weights("new.yaml", folder / "b")
    assert '"doubled": 1.0' in (folder / "b" / "metrics.jsonl").read_text()
