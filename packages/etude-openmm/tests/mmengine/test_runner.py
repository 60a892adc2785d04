from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import SequentialSampler

from tests.mmengine import toy  # isort: skip  (serves the names below)
from mmengine.config import Config, ConfigDict
from mmengine.evaluator import Evaluator
from mmengine.optim import OptimWrapper, OptimWrapperDict, StepLR
from mmengine.registry import LOOPS, MODELS, RUNNERS
from mmengine.runner import BaseLoop, EpochBasedTrainLoop, FlexibleRunner, IterBasedTrainLoop, Runner, ValLoop


def test_groups_of_arguments_come_whole_or_not_at_all(tmp_path: Path) -> None:
    for missing in ("train_dataloader", "train_cfg", "optim_wrapper"):
        with pytest.raises(ValueError, match="all None or not None"):
            toy.make(tmp_path, **{missing: None})
    with pytest.raises(ValueError, match="all None or not None"):
        toy.make(tmp_path, val=True, val_evaluator=None)
    with pytest.raises(ValueError, match="param_scheduler should be None"):
        Runner(toy.Net(), str(tmp_path), param_scheduler={"type": "StepLR", "step_size": 1})


def test_a_run_without_loops_refuses_to_run_them(tmp_path: Path) -> None:
    runner = Runner(toy.Net(), str(tmp_path), log_level="ERROR", experiment_name="bare")
    for verb in ("train", "val", "test"):
        with pytest.raises(RuntimeError):
            getattr(runner, verb)()
    assert (runner.epoch, runner.iter, runner.max_epochs, runner.max_iters) == (0, 0, 0, 0)


def test_nothing_is_built_before_it_is_needed(tmp_path: Path) -> None:
    runner = toy.make(tmp_path, val=True, param_scheduler={"type": "StepLR", "step_size": 1})
    assert isinstance(runner._train_loop, dict) and isinstance(runner.optim_wrapper, dict)
    assert isinstance(runner.param_schedulers, dict)
    assert isinstance(runner.train_loop, EpochBasedTrainLoop)
    assert isinstance(runner.val_loop, ValLoop) and isinstance(runner.val_evaluator, Evaluator)
    assert len(runner.train_dataloader) == 4 and (runner.val_begin, runner.val_interval) == (1, 1)


def test_training_leaves_the_files_users_look_for(tmp_path: Path) -> None:
    runner = toy.make(tmp_path, val=True, cfg=Config({"some": "thing"}))
    assert runner.train() is runner.model
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    stamp = runner.timestamp
    assert {
        f"{stamp}.py",
        f"{stamp}/{stamp}.log",
        f"{stamp}/vis_data/scalars.json",
        f"{stamp}/vis_data/config.py",
    } <= names
    assert {"epoch_1.pth", "epoch_2.pth", "last_checkpoint"} <= names
    assert (tmp_path / "last_checkpoint").read_text() == str(tmp_path / "epoch_2.pth")


def test_a_config_becomes_the_same_runner(tmp_path: Path) -> None:
    MODELS.register_module(name="ToyNetForConfig", module=toy.Net, force=True)
    given = toy.arguments(tmp_path, model={"type": "ToyNetForConfig"}, free="value")
    given["train_dataloader"]["dataset"] = {"type": "NumbersForConfig"}
    from mmengine.registry import DATASETS

    DATASETS.register_module(name="NumbersForConfig", module=toy.Numbers, force=True)
    cfg = Config(copy.deepcopy(given))
    runner = Runner.from_cfg(cfg)
    assert runner.cfg.free == "value" and runner.model_name == "Net"
    assert isinstance(RUNNERS.build(cfg), Runner)
    runner.train()
    assert runner.iter == 8


def test_two_runs_of_one_second_share_nothing(tmp_path: Path) -> None:
    given = toy.arguments(tmp_path, experiment_name="twin")
    one, other = Runner(**given), Runner(**(given | {"model": toy.Net()}))
    assert one.experiment_name != other.experiment_name
    assert one.message_hub is not other.message_hub


def test_loops_are_built_by_kind_type_or_object(tmp_path: Path) -> None:
    @LOOPS.register_module(force=True)
    class OwnLoop(BaseLoop):
        max_epochs, max_iters, epoch, iter, stop_training = 1, 3, 0, 0, False

        def run(self) -> None:
            self.runner.call_hook("before_train")
            for self.iter, batch in enumerate(self.dataloader):
                self.runner.call_hook("own_point", batch=batch)
                self.runner.model.train_step(batch, optim_wrapper=self.runner.optim_wrapper)
            self.runner.call_hook("after_train")

    class Own(toy.Hook):
        seen: list[Any] = []

        def own_point(self, runner: Any, batch: Any) -> None:
            self.seen.append(len(batch["inputs"]))

    runner = toy.make(tmp_path, train_cfg={"type": "OwnLoop"}, default_hooks={"checkpoint": None, "logger": None})
    runner.register_hook(Own())
    runner.train()
    assert runner.iter == 3 and Own.seen == [2, 2, 2, 2]
    assert isinstance(runner.build_train_loop({"by_epoch": False, "max_iters": 3}), IterBasedTrainLoop)
    assert runner.build_train_loop(runner.train_loop) is runner.train_loop
    with pytest.raises(RuntimeError, match="Only one"):
        runner.build_train_loop({"type": "OwnLoop", "by_epoch": True})
    with pytest.raises(KeyError):
        runner.build_train_loop({"max_epochs": 1})
    with pytest.raises(TypeError):
        runner.build_train_loop("loop")
    with pytest.raises(AssertionError):
        runner.build_train_loop({"by_epoch": True, "max_epochs": 1.5})


def test_optim_wrappers_are_built_from_every_form(tmp_path: Path) -> None:
    runner = toy.make(tmp_path)
    params = list(runner.model.parameters())
    wrapper = runner.build_optim_wrapper({"optimizer": {"type": "SGD", "lr": 0.1}})
    assert type(wrapper) is OptimWrapper and runner.build_optim_wrapper(wrapper) is wrapper
    held = runner.build_optim_wrapper({"type": "OptimWrapper", "optimizer": torch.optim.SGD(params, lr=1.0)})
    assert held.get_lr() == {"lr": [1.0]}
    several = runner.build_optim_wrapper({"a": wrapper, "b": held})
    assert isinstance(several, OptimWrapperDict) and several.get_lr() == {"a.lr": [0.1], "b.lr": [1.0]}
    with pytest.raises(TypeError):
        runner.build_optim_wrapper("SGD")
    with pytest.raises(ValueError):
        runner.build_optim_wrapper({"a": {"type": "SGD", "lr": 1}})


def test_schedulers_end_with_the_run_unless_told_otherwise(tmp_path: Path) -> None:
    runner = toy.make(tmp_path)
    runner.optim_wrapper = runner.build_optim_wrapper(runner.optim_wrapper)
    by_epoch, by_iter = runner.build_param_scheduler(
        [{"type": "StepLR", "step_size": 1}, {"type": "LinearLR", "by_epoch": False}]
    )
    assert isinstance(by_epoch, StepLR) and (by_epoch.end, by_iter.end) == (2, 8)
    for wrong in ("StepLR", [{"step_size": 1}]):
        with pytest.raises((TypeError, ValueError)):
            toy.make(tmp_path, param_scheduler=wrong)


def test_learning_rates_are_scaled_to_the_batch_size(tmp_path: Path) -> None:
    runner = toy.make(tmp_path, auto_scale_lr={"enable": True, "base_batch_size": 16})
    runner.train()
    assert runner.optim_wrapper.get_lr()["lr"] == [pytest.approx(0.1 * 2 / 16)]
    other = toy.make(tmp_path, auto_scale_lr={"enable": False, "base_batch_size": 16})
    other.train()
    assert other.optim_wrapper.get_lr()["lr"] == [0.1]


def test_dataloaders_are_built_with_seeded_samplers_and_lists(tmp_path: Path) -> None:
    made = Runner.build_dataloader(toy.loader(shuffle=True), seed=3)
    assert made.sampler.seed == 3
    assert isinstance(next(iter(made))["inputs"], list)
    stacked = Runner.build_dataloader(toy.loader(collate_fn={"type": "default_collate"}))
    assert next(iter(stacked))["inputs"].shape == (2, 2)
    assert len(Runner.build_dataloader(toy.loader(num_batch_per_epoch=2))) == 2
    assert Runner.build_dataloader(made) is made
    without = toy.loader()
    without.pop("sampler")
    with pytest.raises(KeyError):
        Runner.build_dataloader(without)
    assert isinstance(Runner.build_dataloader(ConfigDict(without)).sampler, SequentialSampler)
    with pytest.raises(TypeError):
        Runner.build_dataloader(toy.loader(collate_fn="pseudo"))


def test_a_model_without_the_step_that_is_asked_for_is_refused(tmp_path: Path) -> None:
    runner = toy.make(tmp_path, model=nn.Linear(1, 1))
    with pytest.raises(AssertionError, match="train_step"):
        runner.train()


def test_val_and_test_return_metrics_and_the_test_is_written_down(tmp_path: Path) -> None:
    runner = toy.make(
        tmp_path, val=True, test=True, default_hooks={"checkpoint": {"type": "CheckpointHook", "save_best": "acc"}}
    )
    assert runner.val() == {"acc": 0.5}
    assert runner.test() == {"acc": 0.5}
    assert (Path(runner.log_dir) / f"{runner.timestamp}.json").exists()


def test_a_second_training_of_a_finished_run_does_nothing(tmp_path: Path) -> None:
    runner = toy.make(tmp_path)
    runner.train()
    runner.train()
    assert runner.iter == 8 and len(runner.model.batches) == 8


def test_the_flexible_runner_resumes_with_an_average(tmp_path: Path) -> None:
    def make(**more: Any) -> Any:
        given = toy.arguments(tmp_path, custom_hooks=[{"type": "EMAHook", "momentum": 0.1}], **more)
        return FlexibleRunner(**given)

    whole = make(work_dir=str(tmp_path / "whole"))
    whole.train()
    first = make(train_cfg={"by_epoch": True, "max_epochs": 1})
    first.train()
    second = make(resume=str(tmp_path / "epoch_1.pth"), strategy={"type": "SingleDeviceStrategy"})
    second.train()
    assert second.iter == 8
    assert torch.equal(second.model.fc.weight, whole.model.fc.weight)
    with pytest.raises(ValueError):
        make(resume="a.pth", load_from="b.pth")


def test_a_run_that_is_told_to_stop_saves_where_it_is_and_goes_on_exactly(tmp_path: Path) -> None:
    class Stop(toy.Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
            if runner.iter == 4:
                runner.engine.stop("asked to", exit_code=143)

    whole = toy.make(tmp_path / "whole", train_dataloader=toy.loader(shuffle=True))
    whole.train()
    stopped = toy.make(tmp_path / "cut", train_dataloader=toy.loader(shuffle=True), custom_hooks=[Stop()])
    stopped.train()
    assert (stopped.epoch, stopped.iter) == (1, 5)
    assert (tmp_path / "cut" / "last_checkpoint").read_text().endswith("iter_5.pth")
    rest = toy.make(tmp_path / "cut", train_dataloader=toy.loader(shuffle=True), resume=True)
    rest.train()
    assert stopped.model.batches + rest.model.batches == whole.model.batches
    assert torch.equal(rest.model.fc.weight, whole.model.fc.weight)


class Normed(toy.Net):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
        return super().forward(self.body(torch.stack(list(inputs))), data_samples, mode)


def test_activations_that_are_computed_again_change_no_result(tmp_path: Path) -> None:
    """A part whose inputs need no gradient learns all the same, and its statistics see every batch once."""
    plain, again = (
        toy.make(tmp_path, model=Normed(), cfg=Config({"activation_checkpointing": names}))
        for names in (None, ["body"])
    )
    first = plain.model.body[0].weight.detach().clone()
    for runner in (plain, again):
        runner.train()
    assert not torch.equal(plain.model.body[0].weight, first)
    for name, value in plain.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name
