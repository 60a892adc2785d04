"""What ``etude plan`` tells of an MMEngine config is what the run then does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.cli import main
from etude.dialects.rehearsal import EVALUATION, LOG_LINE, SAVE, Record
from etude_openmm.mmengine.live.loops import BaseLoop
from etude_openmm.mmengine.live.rehearse import prepare, rehearse
from tests.mmengine.toy import Hook, loader, make
from tests.sampling import examples


def told(folder: Path, **options: Any) -> Record:
    """The rehearsal of a runner."""
    run = make(folder, **options).engine
    prepare(run)
    record = Record(run)
    with torch.no_grad():
        rehearse(run, record)
    return record


def trained(folder: Path, **options: Any) -> Record:
    """The same record, taken from the run itself: its updates, validations, saves and lines."""
    runner = make(folder, **options)
    run, record = runner.engine, Record(runner.engine)
    step, save, lines = run.model.train_step, runner.save_checkpoint, runner.log_processor.get_log_after_iter

    def noted_step(*args: Any, **kwargs: Any) -> Any:
        record.update()
        return step(*args, **kwargs)

    def noted_save(out_dir: str, filename: str, *args: Any, **kwargs: Any) -> None:
        record.did(SAVE, filename)
        save(out_dir, filename, *args, **kwargs)

    def noted_line(runner: Any, batch_idx: int, mode: str) -> Any:
        if mode == "train":
            record.did(LOG_LINE)
        return lines(runner, batch_idx, mode)

    class Watch(Hook):
        def before_val(self, runner: Any) -> None:
            record.did(EVALUATION)

    run.model.train_step, runner.save_checkpoint = noted_step, noted_save
    runner.log_processor.get_log_after_iter = noted_line
    runner.register_hook(Watch())
    runner.train()
    return record


def assert_same(one: Record, other: Record) -> None:
    assert one.values == other.values
    for what in (EVALUATION, SAVE, LOG_LINE):
        assert one.done.get(what) == other.done.get(what), what
    assert one.saves == other.saves and one.steps == other.steps


BY_EPOCH = st.booleans()
ENDS = st.sampled_from([{}, {"begin": 1, "end": 3}, {"end": 2}])
CURVES = st.sampled_from(
    [
        {"type": "LinearLR", "start_factor": 0.2},
        {"type": "ConstantLR", "factor": 0.5},
        {"type": "StepLR", "step_size": 2},
        {"type": "MultiStepLR", "milestones": [1, 3]},
        {"type": "ExponentialLR", "gamma": 0.9},
        {"type": "CosineAnnealingLR", "T_max": 3, "eta_min": 1e-3},
        {"type": "PolyLR", "power": 2.0},
        {"type": "CosineRestartLR", "periods": [2, 9], "restart_weights": [1, 0.5], "eta_min": 0},
        {"type": "LinearMomentum", "start_factor": 0.2},
        {"type": "ExponentialParamScheduler", "param_name": "weight_decay", "gamma": 0.5},
    ]
)


@st.composite
def schedulers(draw: Any) -> list[dict[str, Any]]:
    """A chain of up to three, each by epoch, by iteration, or by epochs turned into iterations."""
    made = []
    for _ in range(draw(st.integers(0, 3))):
        by_epoch = draw(BY_EPOCH)
        turned = by_epoch and draw(BY_EPOCH)
        made.append(
            {**draw(CURVES), **draw(ENDS), "by_epoch": by_epoch, **({"convert_to_iter_based": True} if turned else {})}
        )
    return made


@st.composite
def runs(draw: Any) -> dict[str, Any]:
    by_epoch = draw(st.booleans())
    small = st.integers(1, 3)
    length = {"max_epochs": draw(small)} if by_epoch else {"max_iters": draw(st.integers(1, 9))}
    dynamic = draw(st.sampled_from([{}, {"dynamic_intervals": [(2, 1)]}, {"dynamic_intervals": [(2, 3), (3, 1)]}]))
    checkpoint = {
        "type": "CheckpointHook", "by_epoch": draw(st.booleans()), "interval": draw(st.sampled_from([-1, 1, 2])),
        "save_last": draw(st.booleans()), "save_begin": draw(st.integers(0, 2)),
        "max_keep_ckpts": draw(st.sampled_from([-1, 1, 2])), "filename_tmpl": draw(st.sampled_from([None, "at_{}.pth"])),
    }  # fmt: skip
    logger = {"type": "LoggerHook", "interval": draw(small), "ignore_last": draw(st.booleans())}
    return {
        "val": draw(st.booleans()),
        "train_cfg": {"by_epoch": by_epoch, "val_begin": draw(small), "val_interval": draw(small), **length, **dynamic},
        "param_scheduler": draw(schedulers()) or None,
        "default_hooks": {"checkpoint": checkpoint, "logger": logger},
        "optim_wrapper": {
            "optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
            **draw(st.sampled_from([{}, {"paramwise_cfg": {"bias_lr_mult": 2.0}}, {"accumulative_counts": 2}])),
        },
    }


@pytest.mark.filterwarnings("ignore:Detected call of")
@settings(max_examples=examples(20))
@given(options=runs())
def test_a_rehearsal_tells_what_the_run_does(options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rehearsed = told(Path(folder) / "told", **options)
        assert not list((Path(folder) / "told").glob("*.pth"))
        assert_same(rehearsed, trained(Path(folder) / "done", **options))
        assert sorted(rehearsed.kept) == sorted(path.name for path in (Path(folder) / "done").glob("*.pth"))


def test_nothing_is_loaded_and_no_hook_of_the_user_is_called(tmp_path: Path) -> None:
    class Loud(Hook):
        def before_train(self, runner: Any) -> None:
            raise AssertionError("called")

        after_train_iter = before_train

    class Broken:
        metainfo: dict[str, Any] = {}

        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("loaded")

    record = told(tmp_path, custom_hooks=[Loud()], train_dataloader=loader(dataset=Broken()))
    assert record.calls["after_step", "Loud"] == 8 and record.steps == 8
    assert record.calls["before_train", "Loud"] == 1


def test_what_depends_on_results_is_said(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"type": "CheckpointHook", "interval": 1, "save_best": "acc", "published_keys": "meta"}}
    stop = {"type": "EarlyStoppingHook", "monitor": "acc"}
    plateau = {"type": "ReduceOnPlateauLR", "monitor": "acc", "rule": "greater"}
    record = told(tmp_path, val=True, default_hooks=hooks, custom_hooks=[stop], param_scheduler=plateau, resume=True)
    said = " / ".join(record.notes)
    for words in ("best acc", "published", "EarlyStoppingHook", "ReduceOnPlateauLR", "from the beginning"):
        assert words in said


def test_the_best_of_whatever_comes_first_is_told_so(tmp_path: Path) -> None:
    hooks = {"checkpoint": {"type": "CheckpointHook", "interval": 1, "save_best": "auto"}}
    record = told(tmp_path, val=True, default_hooks=hooks)
    assert any("a new best of the first result of a validation is saved" in note for note in record.notes)


class Twice(BaseLoop):
    """A loop in the old manner: counts by itself and calls the points by itself."""

    max_epochs, max_iters, epoch, iter, stop_training = 1, 3, 0, 0, False
    _epoch = _iter = 0

    def run(self) -> None:
        self.runner.call_hook("before_train")
        self.runner.call_hook("before_train_epoch")
        for index, batch in enumerate(self.dataloader):
            if index == self.max_iters:
                break
            self.runner.call_hook("before_train_iter", batch_idx=index, data_batch=batch)
            outputs = self.runner.model.train_step(batch, optim_wrapper=self.runner.optim_wrapper)
            self.runner.call_hook("after_train_iter", batch_idx=index, data_batch=batch, outputs=outputs)
            self.iter += 1
        self.runner.val_loop.run()
        self.runner.call_hook("after_train_epoch")
        self.runner.call_hook("after_train")


def test_loops_of_the_user_are_gone_through_as_well(tmp_path: Path) -> None:
    options = {
        "val": True,
        "train_cfg": {"type": Twice},
        "param_scheduler": {"type": "StepLR", "step_size": 1, "by_epoch": False},
    }
    record = told(tmp_path, **options)
    assert record.values["", "0", "lr"] == [(0, 0.1), (1, pytest.approx(0.01)), (2, pytest.approx(0.001))]
    assert record.done[EVALUATION] == [3] and record.saves == [(3, "epoch_1.pth")]


CONFIG = """
model = dict(type="tests.mmengine.toy.Net")
train_dataloader = dict(batch_size=2, sampler=dict(type="DefaultSampler"), dataset=dict(type="tests.mmengine.toy.Numbers"))
train_cfg = dict(by_epoch=True, max_epochs=3)
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.1))
param_scheduler = dict(type="StepLR", step_size=1)
default_hooks = dict(checkpoint=dict(type="CheckpointHook", interval=2))
"""


def test_the_command_tells_it(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.py").write_text(CONFIG)
    assert main(["plan", "config.py"]) == 0
    out, err = capsys.readouterr()
    assert "12 steps, 3 epochs, 4 batches" in out and "epoch_2.pth epoch_3.pth" in out.replace(",", "")
    assert "Logging error" not in err and [path.name for path in tmp_path.iterdir()] == ["config.py"]
