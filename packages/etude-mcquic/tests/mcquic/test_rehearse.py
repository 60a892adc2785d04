"""What ``etude plan`` tells of a McQuic config is what the run then does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from etude import compat
from etude.api import load_plan
from etude.build import build
from etude.building.options import Options
from etude.cli import main
from etude.dialects.rehearsal import EVALUATION, SAVE, Record, rehearse
from etude_mcquic.live import builtin  # noqa: F401  registers before a test keeps what is registered
from etude_mcquic.live import hooks as _registered  # noqa: F401  (its own hooks stay)
from etude_mcquic.live.registry import HookRegistry
from tests.mcquic import project
from tests.sampling import sample

LIBRARY = """
from mcquic.train.hooks import StepFinishHook, EpochFinishHook
from mcquic.utils.registry import HookRegistry

@HookRegistry.register
class Watch(StepFinishHook, EpochFinishHook):
    steps, epochs = [], []
    def stepFinish(self, step, epoch, trainer, *args, logger, **kwds):
        self.steps.append(step)
    def epochFinish(self, step, epoch, trainer, *args, logger, **kwds):
        self.epochs.append(epoch)
"""
SCHEDULES = [
    {"key": "Exponential", "params": {"gamma": 0.5}},
    {"key": "MultiStep", "params": {"milestones": [2, 4], "gamma": 0.1}},
    {"key": "CosineAnnealingWarmupRestarts", "params": {"first_cycle_steps": 3, "warmup_steps": 1, "cycle_mult": 2.0}},
    {"key": "MultiStepLRWithWarmUp", "params": {"milestones": [2, 4]}},
    {"key": "OneCycle", "params": {"max_lr": 0.1, "total_steps": 6}},
]


compat.install()


@pytest.fixture(autouse=True)
def _forget_what_was_registered(monkeypatch):
    monkeypatch.setattr(HookRegistry, "_map", dict(HookRegistry._map))


def _built(folder: str):
    plan, _ = load_plan("config.yaml")
    return build(plan, Options(folder=Path(folder), quiet=True))


def _trained(folder: str) -> Record:
    """The same record, taken from the run itself: its update, its validations and its files."""
    run = _built(folder)
    record, trainer = Record(run), run.runner
    update, validate, save = run.update, trainer.validator, trainer.saver.save

    def noted_update(run, batch):
        record.update()
        return update(run, batch)

    def noted_validator(epoch, trainer):
        record.did(EVALUATION)
        return validate(epoch, trainer)

    def noted_save(path=None, **objects):
        record.did(SAVE, Path(path or trainer.saver.SavePath).name)
        save(path, **objects)

    run.update, trainer.validator, trainer.saver.save = noted_update, noted_validator, noted_save
    run.train_fn(run)
    return record


#: Each schedule with one of the frequencies; with `make test-all` with both.
CASES = sample([(schedule, frequency) for schedule in SCHEDULES for frequency in (1, 4)], (0, 3, 4, 7, 8))


@pytest.mark.parametrize(
    ("schedule", "frequency"), CASES, ids=lambda value: value["key"] if value in SCHEDULES else None
)
def test_the_rehearsal_is_the_run(workdir, schedule, frequency):
    Path("watch.py").write_text(LIBRARY)
    project.write(workdir, count=2, epoch=6, valFreq=frequency, schdr=schedule, externalLib=["watch.py"],
                  hooks=[{"key": "Watch", "params": {}}], batchSize=1)  # fmt: skip
    told, trained = rehearse(_built("told")), _trained("trained")
    assert told.values == trained.values and len(told.values["", "0", "lr"]) == 12
    assert told.done[EVALUATION] == trained.done[EVALUATION]
    assert told.saves == trained.saves
    assert told.calls["after_step", "Watch"] == 12 and told.calls["after_epoch", "Watch"] == 6


def test_users_hooks_are_noted_and_not_called(workdir):
    Path("watch.py").write_text(LIBRARY)
    project.write(workdir, externalLib=["watch.py"], hooks=[{"key": "Watch", "params": {}}])
    rehearse(_built("told"))
    assert HookRegistry.get("Watch").steps == []


def test_a_plateau_is_told_as_what_it_is(workdir):
    project.write(workdir, schdr={"key": "ReduceLROnPlateau", "params": {"patience": 0}}, epoch=4)
    told = rehearse(_built("told"))
    assert len({value for _, value in told.values["", "0", "lr"]}) == 1
    assert any("ReduceLROnPlateau" in note for note in told.notes)


def test_the_plan_tells_values_times_and_files_and_writes_nothing(workdir, capsys, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # of the model beside the config
    project.write(workdir)
    before = sorted(Path().rglob("*"))
    assert main(["plan", "config.yaml"]) == 0
    said = capsys.readouterr().out
    for part in ("3 epochs", "evaluation       0 2", "saved.ckpt last.ckpt", "curve      lr 0"):
        assert part in said, part
    assert sorted(Path().rglob("*")) == before
    assert main(["plan", "config.yaml", "--acts"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["epoch", "0", "step", "0", "before_epoch", "validate"]
