"""What ``etude plan`` tells of an mmcv config is what the run then does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import UnsatisfiedAssumption

from etude.api import load_plan, train
from etude.build import build
from etude.building.options import Options
from etude.cli import main
from etude.dialects.rehearsal import EVALUATION, LOG_LINE, Record, rehearse, values_of
from etude_openmm.mmcv1.live.logger.text import TextLoggerHook
from etude_openmm.mmcv1.live.rehearse import UPDATE, VAL_LINE, VALIDATION
from etude_openmm.mmcv1.live.runner.base_runner import BaseRunner
from tests.sampling import examples

PARTS = """
import torch
from mmcv.runner import HOOKS, Hook, LrUpdaterHook
from mmcls.datasets import DATASETS
from mmcls.models import CLASSIFIERS
from mmtrack.datasets import DATASETS as TRACK_DATASETS
from mmtrack.models import MODELS as TRACK_MODELS
from tests.mmcv1.toys import Net, Noisy
from tests.mmcv1 import test_rehearse

@DATASETS.register_module(force=True)
@TRACK_DATASETS.register_module(force=True)
class PlannedData(Noisy):
    CLASSES = ('a', 'b')
    def __init__(self, size=22, test_mode=False):
        super().__init__(size)
    def __getitem__(self, index):
        test_rehearse.SEEN.loaded = True
        return super().__getitem__(index)
    def evaluate(self, results, logger=None, **kwargs):
        test_rehearse.SEEN.did('evaluation')
        return {'acc': 0.5, 'loss': 1.0}

@CLASSIFIERS.register_module(force=True)
@TRACK_MODELS.register_module(force=True)
class PlannedModel(Net):
    def train_step(self, data, optimizer=None, **kwargs):
        test_rehearse.SEEN.step(optimizer)
        return super().train_step(data, optimizer)
    def val_step(self, data, optimizer=None, **kwargs):
        test_rehearse.SEEN.did('val step')
        return Net.train_step(self, data, optimizer)

@HOOKS.register_module(force=True)
class MineHook(Hook):
    def after_train_iter(self, runner):
        test_rehearse.SEEN.did('mine')

@HOOKS.register_module(force=True)
class HalvingLrUpdaterHook(LrUpdaterHook):
    def get_lr(self, runner, base_lr):
        return base_lr * 0.5 ** (runner.epoch if self.by_epoch else runner.iter)

@HOOKS.register_module(force=True)
class FallingLrUpdaterHook(LrUpdaterHook):
    def get_lr(self, runner, base_lr):
        assert runner.epoch < 2, 'there is no rate for epoch 3'
        return base_lr
"""

HEAD = """
model = dict(type='PlannedModel')
data = dict(samples_per_gpu=4, workers_per_gpu=0, train=dict(type='PlannedData'), val=dict(type='PlannedData', size=6))
optimizer = dict(type={optimizer}, lr=0.1, paramwise_cfg=dict(custom_keys={{'fc1': dict(lr_mult=0.5)}}))
custom_imports = dict(imports=['parts_of_a_plan'], allow_failed_imports=False)
load_from = None
resume_from = None
seed = 5
"""


class Seen:
    """What a real run does, by the number of steps that were begun."""

    def __init__(self) -> None:
        self.steps, self.loaded = 0, False
        self.done: dict[str, list[int]] = {}
        self.saves: list[tuple[int, str]] = []
        self.values: dict[tuple[str, str, str], list[tuple[int, float]]] = {}

    def step(self, optimizer: Any) -> None:
        for index, group in enumerate(optimizer.param_groups):
            for target, value in values_of(group).items():
                self.values.setdefault(("", str(index), target), []).append((self.steps, value))
        self.steps += 1

    def did(self, what: str) -> None:
        self.done.setdefault(what, []).append(self.steps)


SEEN = Seen()


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Record, Seen, list[str]]]:
    """Rehearses a config, then trains it: the record, what was seen, and the files that stayed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "parts_of_a_plan.py").write_text(PARTS)
    monkeypatch.delitem(sys.modules, "parts_of_a_plan", raising=False)
    write, log = BaseRunner._write_checkpoint, TextLoggerHook.log

    def noted_write(self: Any, out_dir: str, filename: str, *args: Any) -> None:
        SEEN.saves.append((SEEN.steps, filename))
        write(self, out_dir, filename, *args)

    def noted_log(self: Any, runner: Any) -> Any:
        record = log(self, runner)
        SEEN.did(f"{record['mode']} line")
        return record

    monkeypatch.setattr(BaseRunner, "_write_checkpoint", noted_write)
    monkeypatch.setattr(TextLoggerHook, "log", noted_log)
    numbers = iter(range(10**6))

    def run(text: str) -> tuple[Record, Seen, list[str]]:
        folder = tmp_path / f"run{next(numbers)}"
        path = tmp_path / "planned.py"
        path.write_text(text)
        plan, _ = load_plan(path)
        SEEN.__init__()  # type: ignore[misc]
        record = rehearse(build(plan, Options(folder=folder, quiet=True)), keep_acts=True)
        assert not SEEN.loaded
        assert not SEEN.done
        assert not folder.exists()
        try:
            train(path, options=Options(folder=folder, quiet=True))
        except Exception as error:
            cause = error.__cause__ or error
            assert any(f"{type(cause).__name__}: {cause}" in note for note in record.notes), error
            reject()
        kept = [file.name for file in folder.glob("*.pth") if not file.is_symlink()]
        return record, SEEN, [name for name in kept if not name.startswith("best_")]

    return run


def _series(values: Any, target: str = "") -> list[list[tuple[int, float]]]:
    """The values over time, group after group, whatever the groups are called."""
    return [series for (_, _, name), series in values.items() if target in ("", name)]


def _compare(record: Record, seen: Seen, kept: list[str]) -> None:
    assert not [note for note in record.notes if "shown only" in note]
    assert record.steps == seen.steps
    assert _series(record.values) == _series(seen.values)
    assert record.done.get(EVALUATION, []) == seen.done.get("evaluation", [])
    assert record.done.get(LOG_LINE, []) == seen.done.get("train line", [])
    assert record.done.get(VAL_LINE, []) == seen.done.get("val line", [])
    assert record.saves == [save for save in seen.saves if not save[1].startswith("best_")]
    assert sorted(record.kept) == sorted(kept)
    mine = [act for act in record.acts if act.who == "MineHook"]
    assert [act.step + 1 for act in mine] == seen.done.get("mine", [])


POLICIES = [
    "'fixed'", "'step', step=2", "'step', step=[1, 3], gamma=0.5, min_lr=0.01", "'exp', gamma=0.9", "'poly', power=2",
    "'inv', gamma=0.1", "'CosineAnnealing', min_lr=0.01", "'CosineAnnealing', min_lr_ratio=0.1",
    "'FlatCosineAnnealing', start_percent=0.4, min_lr=0.0", "'LinearAnnealing', min_lr_ratio=0.2",
    "'CosineRestart', periods=[2, 60], restart_weights=[1, 0.5], min_lr=0.001", "'Halving'",
]  # fmt: skip
BY_ITER = ["'cyclic', target_ratio=(10, 1e-2), cyclic_times=2", "'OneCycle', max_lr=0.5, three_phase=True",
           "'OneCycle', max_lr=[0.1] * 6"]  # fmt: skip
MOMENTA = [
    "'step', step=[2]", "'CosineAnnealing', min_momentum=0.5", "'LinearAnnealing', min_momentum_ratio=0.5",
    "'cyclic', target_ratio=(0.8, 1.0)", "'OneCycle'",
]  # fmt: skip


@st.composite
def configs(draw: st.DrawFn) -> str:
    iters = draw(st.booleans())
    some = lambda *choices: draw(st.sampled_from(choices))  # noqa: E731
    number = lambda low, high: draw(st.integers(low, high))  # noqa: E731
    lines = [HEAD.format(optimizer=some("'SGD', momentum=0.9", "'Adam'"))]
    lr = some(*POLICIES, *BY_ITER)
    if lr not in BY_ITER:
        lr += some("", f", by_epoch={some(True, False)}")
        lr += some("", f", warmup={some('linear', 'exp', 'constant')!r}, warmup_iters={number(1, 8)}, warmup_ratio=0.1")
        if "warmup=" in lr and not iters:
            lr += some("", ", warmup_by_epoch=True")
    lines.append(f"lr_config = dict(policy={lr})")
    if draw(st.booleans()):
        momentum = some(*MOMENTA)
        momentum += some("", ", by_epoch=False", ", warmup='linear', warmup_iters=3, warmup_ratio=0.98")
        lines.append(f"momentum_config = dict(policy={momentum})")
    length = (
        f"'IterBasedRunner', max_iters={number(1, 20)}" if iters else f"'EpochBasedRunner', max_epochs={number(1, 4)}"
    )
    lines.append(f"runner = dict(type={length})")
    workflow = some([("train", 1)], [("train", 2), ("val", 1)], [("val", 1), ("train", 1)], [("train", 5)])
    lines.append(f"workflow = {workflow}")
    by_epoch = some("", f", by_epoch={some(True, False)}")
    lines.append(
        f"checkpoint_config = dict(interval={number(1, 4)}, save_last={some(True, False)}, "
        f"max_keep_ckpts={some(-1, 1, 2)}{by_epoch})"
    )
    kept = some("", ", save_best='auto'", ", save_best='loss'")
    lines.append(f"evaluation = dict(interval={number(1, 5)}, start={some(None, 0, 1, 2, 3)}{kept})")
    loggers = [f"dict(type='TextLoggerHook', ignore_last={some(True, False)}{some('', f', interval={number(1, 4)}')})"]
    if draw(st.booleans()):
        loggers.append(f"dict(type='TextLoggerHook', by_epoch={some(True, False)}, ignore_last={some(True, False)})")
    lines.append(f"log_config = dict(interval={number(1, 7)}, hooks=[{', '.join(loggers)}])")
    hooks = [hook for hook in ("dict(type='EMAHook')", "dict(type='MineHook', priority='HIGH')") if draw(st.booleans())]
    lines.append(f"custom_hooks = [{', '.join(hooks)}]")
    kind = some("", "type='GradientCumulativeOptimizerHook', cumulative_iters=3")
    lines.append(f"optimizer_config = dict({kind})")
    if draw(st.booleans()) and not iters:
        lines.append(f"USE_MMDET = False\ntotal_epochs = {number(1, 4)}")
    return "\n".join(lines)


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(configs())
def test_the_plan_is_what_the_run_does(both: Any, text: str) -> None:
    _compare(*both(text))


FIXED = (
    HEAD.format(optimizer="'SGD', momentum=0.9")
    + """
lr_config = dict(policy='step', step=[1])
runner = dict(type='EpochBasedRunner', max_epochs=3)
workflow = [('train', 1), ('val', 1)]
checkpoint_config = dict(interval=1, max_keep_ckpts=1)
evaluation = dict(interval=2, save_best='acc')
log_config = dict(interval=4, hooks=[dict(type='TextLoggerHook'), dict(type='TensorboardLoggerHook')])
custom_hooks = [dict(type='MineHook')]
optimizer_config = dict(type='GradientCumulativeOptimizerHook', cumulative_iters=4)
"""
)


def test_updates_validations_and_other_loggers_are_told(both: Any) -> None:
    record, seen, kept = both(FIXED)
    _compare(record, seen, kept)
    assert record.done[UPDATE] == [4, 8, 12, 16, 18]
    assert record.done[VALIDATION] == [6, 12, 18]
    assert seen.done["val step"] == [6, 6, 12, 12, 18, 18]
    assert record.done["TensorboardLoggerHook"] == sorted(record.done[LOG_LINE] + record.done[VAL_LINE])
    assert kept == ["epoch_3.pth"]
    assert any("acc is the best so far: that depends on results" in note for note in record.notes)
    assert any("MineHook" in note for note in record.notes)


def test_a_resumed_run_is_told_from_where_it_goes_on(both: Any) -> None:
    both(FIXED)
    saved = next(Path.cwd().glob("run*/epoch_3.pth"))
    record, seen, _ = both(FIXED.replace("max_epochs=3", "max_epochs=5") + f"resume_from = {str(saved)!r}\n")
    told, happened = _series(record.values, "lr")[0], _series(seen.values, "lr")[0]
    assert [step for step, _ in told] == list(range(18, 30))
    assert [value for _, value in told] == [value for _, value in happened]
    assert any("continues after epoch 3, iteration 18" in note for note in record.notes)


def test_a_policy_that_will_fail_is_told_with_its_step(both: Any) -> None:
    text = FIXED.replace("policy='step', step=[1]", "policy='Falling'")
    with pytest.raises(UnsatisfiedAssumption):
        both(text)
    record = _rehearsed("planned.py")
    assert record.steps == 12
    assert any("there is no rate for epoch 3" in note for note in record.notes)


OWN_RUNNER = """
from mmcv.runner import EpochBasedRunner, RUNNERS

@RUNNERS.register_module(force=True)
class LoudRunner(EpochBasedRunner):
    def call_hook(self, fn_name):
        raise RuntimeError('a hook is called')

    def save_checkpoint(self, out_dir, filename_tmpl='mine_{}.pth', **kwargs):
        raise RuntimeError('something is saved')

    def train(self, data_loader, **kwargs):
        self.model.train()
        self.mode, self.data_loader = 'train', data_loader
        self.call_hook('before_train_epoch')
        for i, batch in enumerate(data_loader):
            self._inner_iter = i
            self.call_hook('before_train_iter')
            self.run_iter(batch, train_mode=True)
            self.call_hook('after_train_iter')
            self._iter += 1
        self.call_hook('after_train_epoch')
        self._epoch += 1
"""


def test_a_runner_of_the_users_is_told_by_its_own_loop(both: Any) -> None:
    Path("own_runner_of_a_plan.py").write_text(OWN_RUNNER)
    text = FIXED.replace("EpochBasedRunner", "LoudRunner").replace(
        "['parts_of_a_plan']", "['parts_of_a_plan', 'own_runner_of_a_plan']"
    )
    Path("planned.py").write_text(text)
    record = _rehearsed("planned.py")
    assert record.notes[0].startswith("best_")
    assert not any("shown only" in note for note in record.notes), record.notes
    assert record.steps == 18
    assert record.saves == [(6, "mine_1.pth"), (12, "mine_2.pth"), (18, "mine_3.pth")]
    assert [value for _, value in _series(record.values, "lr")[0]] == pytest.approx([0.05] * 6 + [0.005] * 12)


def test_the_plan_of_the_command_line(both: Any, capsys: pytest.CaptureFixture[str]) -> None:
    Path("planned.py").write_text(FIXED)
    before = sorted(Path.cwd().iterdir())
    assert main(["plan", "planned.py"]) == 0
    told = capsys.readouterr().out
    for words in ("OptimizerHook (40, 18 times)", "evaluation       12", "epoch_3.pth", "curve      lr "):
        assert words in told
    assert [path for path in sorted(Path.cwd().iterdir()) if path.name != "__pycache__"] == [
        path for path in before if path.name != "__pycache__"
    ]


def _rehearsed(path: str) -> Record:
    plan, _ = load_plan(path)
    return rehearse(build(plan, Options(folder=Path("nowhere"), quiet=True)))
