from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.mmengine import toy  # isort: skip  (serves the names below)
from mmengine.model import BaseModel
from mmengine.runner import EpochBasedTrainLoop, ValLoop
from mmengine.runner.loops import _InfiniteDataloaderIterator
from mmengine.structures import BaseDataElement


class Seen(toy.Hook):
    """Counters at each validation."""

    def __init__(self) -> None:
        self.at: list[int] = []

    def before_val(self, runner: Any) -> None:
        self.at.append(runner.epoch or runner.iter)


@pytest.mark.parametrize(
    ("train_cfg", "validated"),
    [
        ({"by_epoch": True, "max_epochs": 5, "val_interval": 2}, [2, 4, 5]),
        ({"by_epoch": True, "max_epochs": 5, "val_begin": 3}, [3, 4, 5]),
        ({"by_epoch": False, "max_iters": 10, "val_interval": 5, "dynamic_intervals": [(6, 2)]}, [6, 8, 10]),
        ({"by_epoch": True, "max_epochs": 6, "val_interval": 3, "dynamic_intervals": [(5, 1)]}, [3, 4, 5, 6]),
        ({"by_epoch": False, "max_iters": 7, "val_begin": 4, "val_interval": 3}, [6, 7]),
    ],
)
def test_validation_comes_when_it_is_due_and_at_the_end(
    train_cfg: dict[str, Any], validated: list[int], tmp_path: Path
) -> None:
    hook = Seen()
    toy.make(tmp_path, val=True, train_cfg=train_cfg, custom_hooks=[hook], default_hooks={"checkpoint": None}).train()
    assert hook.at == validated


def test_intervals_that_are_no_tuples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        toy.make(tmp_path, train_cfg={"by_epoch": True, "max_epochs": 2, "dynamic_intervals": [[1, 2]]}).train()


def test_a_loop_of_the_users_may_override_epochs_and_iterations(tmp_path: Path) -> None:
    calls: list[str] = []

    class Own(EpochBasedTrainLoop):
        def run_epoch(self) -> None:
            calls.append(f"epoch {self.epoch}")
            super().run_epoch()

        def run_iter(self, idx: int, data_batch: Any) -> None:
            self.runner.call_hook("before_train_iter", batch_idx=idx, data_batch=data_batch)
            outputs = self.runner.model.train_step(data_batch, optim_wrapper=self.runner.optim_wrapper)
            self.runner.call_hook("after_train_iter", batch_idx=idx, data_batch=data_batch, outputs=outputs)
            self._iter += 1
            calls.append(f"iter {self.iter}")

    class OwnVal(ValLoop):
        def run_iter(self, idx: int, data_batch: Any) -> None:
            calls.append(f"val {idx}")
            super().run_iter(idx, data_batch)

    runner = toy.make(
        tmp_path,
        val=True,
        train_cfg={"type": Own, "max_epochs": 1},
        val_cfg={"type": OwnVal},
        train_dataloader=toy.loader(4),
    )
    runner.train()
    assert calls == ["epoch 0", "iter 1", "iter 2", "val 0", "val 1"]
    assert len(runner.message_hub.get_scalar("train/loss")) == 2


def test_an_endless_iterator_tells_samplers_of_each_pass(tmp_path: Path) -> None:
    from mmengine.runner import Runner

    loader = Runner.build_dataloader(toy.loader(4, shuffle=True), seed=1)
    batches = _InfiniteDataloaderIterator(loader)
    first = [next(batches)["data_samples"] for _ in range(6)]
    assert loader.sampler.epoch == 2
    loader.sampler.set_epoch(0)
    again = _InfiniteDataloaderIterator(loader)
    again.skip(3)
    assert [next(again)["data_samples"] for _ in range(3)] == first[3:]


def test_resuming_an_iteration_loop_loads_no_batch_twice(tmp_path: Path) -> None:
    loaded: list[int] = []

    class Counted(toy.Numbers):
        def __getitem__(self, index: int) -> dict[str, Any]:
            loaded.append(index)
            return super().__getitem__(index)

    def run(iters: int, **more: Any) -> Any:
        runner = toy.make(
            tmp_path,
            train_dataloader=toy.loader(shuffle=True) | {"dataset": Counted()},
            train_cfg={"by_epoch": False, "max_iters": iters},
            default_hooks={"checkpoint": {"type": "CheckpointHook", "by_epoch": False, "interval": 6}},
            **more,
        )
        runner.train()
        return runner

    run(6)
    loaded.clear()
    run(10, resume=True)
    assert len(loaded) == 8


def test_losses_of_a_validation_are_averaged_and_summed(tmp_path: Path) -> None:
    class WithLosses(toy.Net):
        def val_step(self, data: Any) -> list[Any]:
            value = data["inputs"][0][0]
            return [*super().val_step(data), BaseDataElement(loss={"loss_a": value, "other": [value, 2 * value]})]

    runner = toy.make(tmp_path, val=True, model=WithLosses())
    metrics = runner.val()
    assert metrics == {"acc": 0.5, "loss_a": 1.0, "other": 1.5, "val_loss": 1.0}


def test_validation_changes_no_weights_and_training_goes_on_in_train_mode(tmp_path: Path) -> None:
    modes: list[tuple[str, bool, bool]] = []

    class Mode(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(()))

        def forward(self, inputs: Any, data_samples: Any = None, mode: str = "tensor") -> Any:
            modes.append((mode, self.training, torch.is_grad_enabled()))
            return {"loss": self.w**2} if mode == "loss" else [0.0 for _ in inputs]

    toy.make(tmp_path, val=True, model=Mode(), train_dataloader=toy.loader(2), val_dataloader=toy.loader(2)).train()
    assert modes == [("loss", True, True), ("predict", False, False)] * 2
