"""Runners built by hand: subclasses, changes of the hook list, and mistakes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.mmcv1.toys import Net, Noisy, assert_same_bits, noisy_loader, weights

from mmcv.runner import HOOKS, RUNNERS, EpochBasedRunner, EvalHook, Hook, IterBasedRunner, set_random_seed  # isort: skip

TRAIN = [("train", 1)]


class Told(Hook):
    """Writes down which stages it was called at."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def before_run(self, runner: Any) -> None:
        self.stages.append("before_run")

    def before_iter(self, runner: Any) -> None:
        self.stages.append("before_iter")


def _steps(runner: Any) -> None:
    runner.register_training_hooks({"policy": "fixed"}, {}, None)


def test_a_subclass_that_overrides_call_hook_sees_every_stage(make_runner: Any) -> None:
    seen: list[str] = []

    @RUNNERS.register_module(force=True)
    class LoudRunner(EpochBasedRunner):
        def call_hook(self, fn_name: str) -> None:
            seen.append(fn_name)
            super().call_hook(fn_name)

    runner = make_runner(Net(), runner="LoudRunner", max_epochs=1)
    hook = Told()
    runner.register_hook(hook)
    runner.run([noisy_loader(), noisy_loader()], [("train", 1), ("val", 1)])
    assert seen[:3] == ["before_run", "before_train_epoch", "before_train_iter"]
    assert seen[-2:] == ["after_val_epoch", "after_run"]
    assert hook.stages == ["before_run", *["before_iter"] * 12]


def test_a_subclass_that_overrides_train_trains_the_same(make_runner: Any, tmp_path: Path) -> None:
    @RUNNERS.register_module(force=True)
    class OwnLoopRunner(EpochBasedRunner):
        """The loop as mmcv's own source has it."""

        def train(self, data_loader: Any, **kwargs: Any) -> None:
            self.model.train()
            self.mode = "train"
            self.data_loader = data_loader
            self._max_iters = self._max_epochs * len(self.data_loader)
            self.call_hook("before_train_epoch")
            for i, data_batch in enumerate(self.data_loader):
                self.data_batch = data_batch
                self._inner_iter = i
                self.call_hook("before_train_iter")
                self.run_iter(data_batch, train_mode=True, **kwargs)
                self.call_hook("after_train_iter")
                del self.data_batch
                self._iter += 1
            self.call_hook("after_train_epoch")
            self._epoch += 1

    found = []
    for kind in ("EpochBasedRunner", "OwnLoopRunner"):
        runner = make_runner(Net(), runner=kind, folder=tmp_path / kind, max_epochs=2)
        runner.register_training_hooks({"policy": "step", "step": [1]}, {}, {"interval": 1})
        set_random_seed(0)
        runner.run([noisy_loader()], TRAIN)
        found.append(weights(runner))
        assert (runner.epoch, runner.iter) == (2, 12)
    assert_same_bits(*found)
    assert "etude" not in torch.load(tmp_path / "OwnLoopRunner" / "epoch_2.pth", weights_only=False)


def test_a_subclass_may_override_run_iter_and_add_modes(make_runner: Any) -> None:
    @RUNNERS.register_module(force=True)
    class TwiceRunner(EpochBasedRunner):
        tested = 0

        def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
            super().run_iter(data_batch, train_mode, **kwargs)
            self.outputs["twice"] = 2 * self.outputs["loss"]

        def test(self, data_loader: Any, **kwargs: Any) -> None:
            self.tested += 1

    doubled: list[float] = []

    class Look(Hook):
        def after_train_iter(self, runner: Any) -> None:
            doubled.append(float((runner.outputs["twice"] / runner.outputs["loss"]).detach()))

    runner = make_runner(Net(), runner="TwiceRunner", max_epochs=2)
    runner.register_hook(Look())
    runner.run([noisy_loader(), noisy_loader()], [("train", 1), ("test", 1)])
    assert doubled == [2.0] * 12
    assert runner.tested == 2


def test_hooks_may_come_and_go_between_epochs(make_runner: Any) -> None:
    late = Told()

    class Changing(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 0:
                runner.register_hook(late)
            elif runner.epoch == 1:
                runner.hooks.remove(late)

    runner = make_runner(Net(), max_epochs=3)
    runner.register_hook(Changing())
    runner.run([noisy_loader()], TRAIN)
    assert late.stages == ["before_iter"] * 6


def test_arguments_of_run_reach_the_steps(make_runner: Any) -> None:
    class Asking(Net):
        train_kwargs: Any = None
        val_kwargs: Any = None

        def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> Any:
            self.train_kwargs = kwargs
            return super().train_step(data, optimizer)

        def val_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> Any:
            self.val_kwargs = (optimizer is not None, kwargs)
            return super().train_step(data, optimizer)

    flow = [("train", 1), ("val", 1)]
    epochs, iterations = Asking(), Asking()
    make_runner(epochs, max_epochs=1).run([noisy_loader(), noisy_loader()], flow, extra=1)
    make_runner(iterations, max_iters=1).run([noisy_loader(), noisy_loader()], flow, extra=1)
    assert (epochs.train_kwargs, epochs.val_kwargs) == ({"extra": 1}, (True, {}))
    assert (iterations.train_kwargs, iterations.val_kwargs) == ({"extra": 1}, (False, {"extra": 1}))


def test_a_batch_processor_takes_the_place_of_train_step(make_runner: Any, logger: logging.Logger) -> None:
    def process(model: Any, data: Any, train_mode: bool, **kwargs: Any) -> dict[str, Any]:
        loss = ((model(data["x"]) - data["y"]) ** 2).mean()
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": 4}

    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    runner = EpochBasedRunner(net, batch_processor=process, optimizer=optimizer, logger=logger, max_epochs=1)
    _steps(runner)
    before = net.weight.detach().clone()
    runner.run([noisy_loader()], TRAIN)
    assert not torch.equal(before, net.weight)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": torch.nn.Linear(1, 1)}, AssertionError),
        ({"optimizer": "SGD"}, TypeError),
        ({"optimizer": {"a": 1}}, TypeError),
        ({"logger": None}, TypeError),
        ({"meta": [1]}, TypeError),
        ({"work_dir": 3}, TypeError),
        ({"max_iters": 3}, ValueError),
        ({"batch_processor": print}, RuntimeError),
    ],
)
def test_a_wrong_argument_is_refused(changes: dict[str, Any], error: type[Exception], logger: logging.Logger) -> None:
    with pytest.raises(error):
        EpochBasedRunner(**{"model": Net(), "logger": logger, "max_epochs": 1, **changes})


@pytest.mark.parametrize(
    ("loaders", "flow", "error"),
    [
        (noisy_loader(), TRAIN, "data_loaders must be a list"),
        ([noisy_loader()], [["train", 1]], "list of tuples"),
        ([noisy_loader()], [("train", 1), ("val", 1)], "2 entries"),
        ([noisy_loader()], [("val", 1)], "never trains"),
        ([noisy_loader()], [("trian", 1)], "no method named 'trian'"),
    ],
)
def test_a_wrong_workflow_is_refused(make_runner: Any, loaders: Any, flow: Any, error: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=error):
        make_runner(Net(), max_epochs=1).run(loaders, flow)


def test_a_step_that_returns_no_dict_is_named(make_runner: Any) -> None:
    class Wrong(Net):
        def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> Any:
            return self(**data)

    with pytest.raises(TypeError, match="train_step of Wrong must return a dict"):
        make_runner(Wrong(), max_epochs=1).run([noisy_loader()], TRAIN)


def test_a_stage_that_looks_misspelt_is_warned_about(make_runner: Any) -> None:
    class Slip(Hook):
        def after_train_itr(self, runner: Any) -> None: ...

    with pytest.warns(UserWarning, match="did you mean 'after_train_iter'"):
        make_runner(Net(), max_epochs=1).register_hook(Slip())


def test_a_hook_that_raises_is_named(make_runner: Any) -> None:
    class Broken(Hook):
        def after_train_iter(self, runner: Any) -> None:
            raise KeyError("oh")

    runner = make_runner(Net(), max_epochs=1)
    runner.register_hook(Broken())
    with pytest.raises(KeyError) as caught:
        runner.run([noisy_loader()], TRAIN)
    assert any("in hook Broken" in note for note in caught.value.__notes__)


def test_one_hook_is_registered_once(make_runner: Any) -> None:
    runner, hook = make_runner(Net(), max_epochs=1), Told()
    runner.register_hook(hook)
    with pytest.raises(ValueError, match="priority"):
        runner.register_hook(hook)
    with pytest.raises(AssertionError, match=r"derived from mmcv\.runner\.Hook"):
        runner.register_hook(object())


@pytest.mark.parametrize("priority", [1.5, "SOON", 101, -1])
def test_a_priority_that_does_not_exist_is_refused(make_runner: Any, priority: Any) -> None:
    with pytest.raises((TypeError, KeyError, ValueError)):
        make_runner(Net(), max_epochs=1).register_hook(Told(), priority=priority)


def test_without_an_optimizer_there_is_no_rate(logger: logging.Logger) -> None:
    runner = IterBasedRunner(Net(), logger=logger, max_iters=1)
    with pytest.raises(RuntimeError, match="no optimizer"):
        runner.current_lr()


def test_a_misspelt_policy_is_answered_with_the_near_one(make_runner: Any) -> None:
    with pytest.raises(KeyError, match="did you mean 'CosineAnnealing'"):
        make_runner(Net(), max_epochs=1).register_lr_hook({"policy": "cosineannealing", "min_lr": 0})


def test_registered_hooks_are_those_of_mmcv() -> None:
    assert {"EMAHook", "CheckpointHook", "TextLoggerHook", "StepLrUpdaterHook"} <= set(HOOKS.module_dict)
    assert {"EvalHook", "LrUpdaterHook", "LoggerHook"}.isdisjoint(HOOKS.module_dict)


def test_one_cycle_has_the_digits_of_mmcv(make_runner: Any) -> None:
    class Rates(Hook):
        def after_train_iter(self, runner: Any) -> None:
            rates.append(runner.current_lr()[0])

    rates: list[float] = []
    runner = make_runner(Net(), max_iters=12)
    runner.register_training_hooks({"policy": "OneCycle", "max_lr": 0.03}, {}, custom_hooks_config=[Rates()])
    runner.run([DataLoader(Noisy(), batch_size=4)], [("train", 1)])
    assert rates[:4] == [0.0011999999999999997, 0.01049368962658749, 0.02637855477366386, 0.02983246306352735]


def test_a_run_that_ends_in_validation_leaves_the_model_there_and_says_where_the_best_goes(
    make_runner: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Mode(Hook):
        def after_run(self, runner: Any) -> None:
            modes.append(runner.model.training)

    modes: list[bool] = []
    runner = make_runner(Net(), max_epochs=1)
    runner.register_training_hooks({"policy": "fixed"}, {}, custom_hooks_config=[Mode()])
    loader = DataLoader(Noisy(), batch_size=4)
    runner.register_hook(EvalHook(loader, save_best="acc", rule="less", out_dir=str(tmp_path / "best")))
    runner.run([loader, loader], [("train", 1), ("val", 1)])
    assert modes == [False]
    folder = tmp_path / "best" / tmp_path.name
    assert f"The best checkpoint will be saved to {folder} by HardDiskBackend" in caplog.messages
    assert [path.name for path in folder.glob("*.pth")] == ["best_acc_epoch_1.pth"]
