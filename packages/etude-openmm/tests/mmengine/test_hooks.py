from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.mmengine import toy  # isort: skip  (serves the names below)
from mmengine.hooks import (
    CheckpointHook,
    EarlyStoppingHook,
    EMAHook,
    EmptyCacheHook,
    Hook,
    LoggerHook,
    SyncBuffersHook,
)
from mmengine.runner import Priority, get_priority


def test_priorities_have_names_in_any_case_and_limits() -> None:
    assert [get_priority(p) for p in ("highest", "NORMAL", 33, Priority.LOW)] == [0, 50, 33, 70]
    for wrong, error in ((101, ValueError), (-1, ValueError), (0.5, TypeError), ("SOON", KeyError)):
        with pytest.raises(error):
            get_priority(wrong)


def test_helpers_count_from_one() -> None:
    class Counters:
        epoch, iter, max_epochs, max_iters = 2, 9, 3, 10

    hook, runner = Hook(), Counters()
    assert hook.every_n_epochs(runner, 3) and not hook.every_n_epochs(runner, 2) and not hook.every_n_epochs(runner, 0)
    assert hook.every_n_epochs(runner, 2, start=1) and not hook.every_n_epochs(runner, 1, start=4)
    assert (
        hook.every_n_train_iters(runner, 5) and hook.every_n_inner_iters(3, 2) and not hook.every_n_inner_iters(3, -1)
    )
    assert hook.end_of_epoch([1, 2], 1) and hook.is_last_train_epoch(runner) and hook.is_last_train_iter(runner)


def test_a_hook_is_called_only_where_it_does_something(tmp_path: Path) -> None:
    class Fallback(Hook):
        calls: list[str] = []

        def _after_epoch(self, runner: Any, mode: str = "train") -> None:
            self.calls.append(mode)

    runner = toy.make(tmp_path, val=True, custom_hooks=[Fallback()])
    runner.train()
    assert Fallback.calls == ["train", "val"] * 2
    assert Fallback().get_triggered_stages() == ["after_train_epoch", "after_val_epoch", "after_test_epoch"]
    assert "after_train_epoch:\n(NORMAL      ) IterTimerHook" in runner.get_hooks_info()


def test_default_hooks_can_be_replaced_removed_and_added(tmp_path: Path) -> None:
    class Extra(Hook):
        pass

    hooks = {"timer": None, "checkpoint": {"type": "CheckpointHook", "priority": 1}, "extra": Extra()}
    runner = toy.make(tmp_path, default_hooks=hooks)
    names = [type(hook).__name__ for hook in runner.hooks]
    assert names == [
        "CheckpointHook", "RuntimeInfoHook", "DistSamplerSeedHook", "Extra", "LoggerHook", "ParamSchedulerHook"
    ]  # fmt: skip
    assert runner.hooks[0].interval == -1
    with pytest.raises(AssertionError):
        toy.make(tmp_path, default_hooks={"unknown": None})
    with pytest.raises(TypeError):
        runner.register_hook("hook")


def test_an_error_in_a_hook_keeps_its_trace_and_says_whose_it_is(tmp_path: Path) -> None:
    class Faulty(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            raise TypeError("oh no")

    with pytest.raises(TypeError, match="oh no") as caught:
        toy.make(tmp_path, custom_hooks=[Faulty()]).train()
    assert any("Faulty" in note for note in caught.value.__notes__)
    assert caught.traceback[-1].name == "after_train_iter"


def test_a_misspelt_point_is_told_of(tmp_path: Path) -> None:
    class Typo(Hook):
        def after_train_itr(self, runner: Any) -> None:
            pass

    runner = toy.make(tmp_path, custom_hooks=[Typo()], log_level="WARNING")
    log = (Path(runner.log_dir) / f"{runner.timestamp}.log").read_text()
    assert "did you mean after_train_iter?" in log


def test_the_hub_knows_rates_losses_times_and_metrics(tmp_path: Path) -> None:
    runner = toy.make(
        tmp_path, val=True, optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}, "clip_grad": {"max_norm": 1}}
    )
    runner.train()
    hub = runner.message_hub
    lengths = {key: len(history) for key, history in hub.log_scalars.items()}
    per_step = {"train/lr": 8, "train/data_time": 8, "train/grad_norm": 8, "train/loss": 8, "train/time": 8}
    assert per_step.items() <= lengths.items() and lengths["val/acc"] == 2
    infos = hub.runtime_info
    assert (infos["epoch"], infos["iter"], infos["max_epochs"], infos["max_iters"]) == (1, 7, 2, 8)
    assert infos["dataset_meta"] == toy.Numbers.METAINFO and infos["eta"] == 0 and "loop_stage" not in infos


def test_checkpoints_keep_a_bounded_number_and_the_best(tmp_path: Path) -> None:
    hook = {"type": "CheckpointHook", "interval": 1, "max_keep_ckpts": 2, "save_best": "auto"}
    runner = toy.make(
        tmp_path,
        val=True,
        val_evaluator=[toy.Score((0.1, 0.9, 0.5, 0.2))],
        train_cfg={"by_epoch": True, "max_epochs": 4},
        default_hooks={"checkpoint": hook},
    )
    runner.train()
    assert {path.name for path in tmp_path.glob("*.pth")} == {"epoch_3.pth", "epoch_4.pth", "best_acc_epoch_2.pth"}
    assert runner.message_hub.get_info("best_score") == 0.9
    assert not [path for path in tmp_path.iterdir() if ".tmp" in path.name]


@pytest.mark.parametrize(("save_last", "files"), [(True, {"epoch_2.pth", "epoch_3.pth"}), (False, {"epoch_2.pth"})])
def test_where_training_stops_early_is_saved(tmp_path: Path, save_last: bool, files: set[str]) -> None:
    def made(**more: Any) -> Any:
        return toy.make(
            tmp_path,
            val=True,
            train_cfg={"by_epoch": True, "max_epochs": 6},
            default_hooks={"checkpoint": {"type": "CheckpointHook", "interval": 2, "save_last": save_last}},
            custom_hooks=[{"type": "EarlyStoppingHook", "monitor": "acc", "patience": 2}],
            **more,
        )

    stopped = made()
    stopped.train()
    assert (stopped.epoch, {path.name for path in tmp_path.glob("*.pth")}) == (3, files)
    if save_last:
        again = made(resume=True)
        again.load_or_resume()
        assert (again.epoch, again.iter) == (3, 12)
        assert torch.equal(again.model.fc.weight, stopped.model.fc.weight)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"save_best": 1}, AssertionError),
        ({"save_best": ["acc", "acc"]}, AssertionError),
        ({"save_best": ["auto", "acc"]}, AssertionError),
        ({"save_best": "unknown"}, ValueError),
        ({"save_best": "acc", "rule": "up"}, KeyError),
        ({"published_keys": [1]}, TypeError),
        ({"save_begin": -1}, ValueError),
        ({"file_client_args": {}, "backend_args": {}}, ValueError),
    ],
)
def test_checkpoint_options_that_make_no_sense_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        CheckpointHook(**options)


def test_rules_are_guessed_from_names() -> None:
    hook = CheckpointHook(save_best=["loss_top1", "val_loss", "mIoU"])
    assert hook.rules == ["greater", "less", "greater"]
    assert hook.is_better_than["val_loss"](1, 2) and not hook.is_better_than["mIoU"](math.nan, 0)


def test_best_files_can_go_to_another_folder_under_the_runs_name(tmp_path: Path) -> None:
    hook = {"type": "CheckpointHook", "interval": 2, "out_dir": str(tmp_path / "out")}
    toy.make(tmp_path / "work", default_hooks={"checkpoint": hook}).train()
    assert (tmp_path / "out" / "work" / "epoch_2.pth").exists()
    assert (tmp_path / "work" / "last_checkpoint").read_text().endswith("out/work/epoch_2.pth")


def test_logs_are_copied_out_and_may_leave_the_run(tmp_path: Path) -> None:
    logger = {"type": "LoggerHook", "interval": 1, "out_dir": str(tmp_path / "out"), "keep_local": False}
    runner = toy.make(tmp_path / "work", default_hooks={"logger": logger, "checkpoint": None})
    runner.train()
    rows = (tmp_path / "out" / "work" / "vis_data" / "scalars.json").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == list(range(1, 9))
    assert not (Path(runner.log_dir) / "vis_data" / "scalars.json").exists()


@pytest.mark.parametrize(
    ("options", "error"),
    [({"interval": "1"}, TypeError), ({"interval": 0}, ValueError), ({"ignore_last": 1}, TypeError),
     ({"out_dir": 1}, TypeError), ({"file_client_args": {}}, ValueError), ({"interval_exp_name": 0}, ValueError)],
)  # fmt: skip
def test_logger_options_that_make_no_sense_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        LoggerHook(**options)


def test_early_stopping_needs_a_rule_it_can_guess() -> None:
    assert EarlyStoppingHook(monitor="loss").rule == "less"
    for options in ({"monitor": "unknown"}, {"monitor": "acc", "rule": "max"}):
        with pytest.raises(ValueError):
            EarlyStoppingHook(**options)


def test_an_average_must_begin_within_the_run(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        EMAHook(begin_iter=1, begin_epoch=1)
    for late in ({"begin_epoch": 3}, {"begin_iter": 9}):
        with pytest.raises(AssertionError):
            toy.make(tmp_path, custom_hooks=[{"type": "EMAHook", **late}]).train()


def test_hooks_for_gpus_and_processes_are_quiet_without_them(tmp_path: Path) -> None:
    hooks = [SyncBuffersHook(), EmptyCacheHook(before_epoch=True, after_iter=True)]
    toy.make(tmp_path, val=True, custom_hooks=hooks).train()


def test_a_fall_back_learns_the_mode(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int]] = []

    class Both(toy.Hook):
        def _before_iter(self, runner: Any, batch_idx: int, data_batch: Any, mode: str) -> None:
            seen.append(("before", mode, batch_idx))

        def _after_iter(self, runner: Any, batch_idx: int, data_batch: Any, outputs: Any, mode: str) -> None:
            seen.append(("after", mode, batch_idx))

    toy.make(tmp_path, val=True, train_cfg={"by_epoch": True, "max_epochs": 1}, custom_hooks=[Both()]).train()
    assert seen[:2] == [("before", "train", 0), ("after", "train", 0)]
    assert [mode for _, mode, _ in seen] == ["train"] * 8 + ["val"] * 4


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("bare", [True, False])
def test_an_average_starts_from_any_file_that_the_model_starts_from(tmp_path: Path, prefix: str, bare: bool) -> None:
    weights = {f"{prefix}fc.weight": torch.full((1, 2), 3.0), f"{prefix}fc.bias": torch.full((1,), 4.0)}
    torch.save(weights if bare else {"state_dict": weights}, tmp_path / "plain.pth")
    hook = EMAHook()
    runner = toy.make(tmp_path / "work", custom_hooks=[hook], load_from=str(tmp_path / "plain.pth"))
    runner.call_hook("before_run")
    runner.load_or_resume()
    assert hook.ema_model is not None
    for net in (runner.model, hook.ema_model.module):
        assert torch.equal(net.fc.weight, torch.full((1, 2), 3.0)) and float(net.fc.bias) == 4.0
