"""Every snippet of LiBai's training tutorial, as files of a user's project, run on Étude."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.cli import main
from tests.libai import project

MYHOOK = """
import logging

from libai.engine.trainer import HookBase

logger = logging.getLogger("libai.myhook")


class InfoHook(HookBase):
    def before_train(self):
        logger.info(f"start training at {self.trainer.iter}")

    def after_train(self):
        logger.info(f"end training ad {self.trainer.iter}")

    def after_step(self):
        if self.trainer.iter % 100 == 0:
            logger.info(f"iteration {self.trainer.iter}!")


myhook = InfoHook
"""

MYTRAINER = """
import time
from typing import Callable

from libai.engine.trainer import EagerTrainer


class MyEagerTrainer(EagerTrainer):

    def __init__(self, model, data_loader, optimizer, grad_acc_steps=1):
        super().__init__(model, data_loader, optimizer, grad_acc_steps)
        self.previous_output = None

    def run_step(self, get_batch: Callable{extra}):
        assert self.model.training
        start = time.perf_counter()
        data = next(self._data_loader_iter)
        data = get_batch(data, "cpu", getattr(self.data_loader, "mixup_func", None))
        data_time = time.perf_counter() - start

        loss_dict = self.model(**data)
        self.previous_output = loss_dict
        losses = sum(v for k, v in loss_dict.items() if "loss" in k) / self.grad_acc_steps
        losses.backward()
        self.write_metrics(loss_dict, data_time)
        if (self.iter + 1) % self.grad_acc_steps == 0:
            self.optimizer.clip_grad()
            self.optimizer.step()
            self.optimizer.zero_grad()
"""

MY_TRAIN_NET = """
import logging
import random

import numpy as np
import oneflow as flow

import libai.utils.distributed as dist
from libai.config import LazyConfig, default_argument_parser
from libai.engine import DefaultTrainer, default_setup, hooks
from path_to_myhook import myhook
from path_to_mytrainer import MyEagerTrainer


class MyTrainer(DefaultTrainer):
    def __init__(self, cfg):
        super().__init__(cfg)

        # add your _trainer according to your own needs
        # NOTE: run_step() is overwrited in your _trainer
        self._trainer = MyEagerTrainer(
            self.model, self.train_loader, self.optimizer, cfg.train.num_accumulation_steps
        )

    def build_hooks(self):
        ret = [
            hooks.IterationTimer(),
            hooks.LRScheduler(),
            hooks.PeriodicCheckpointer(self.checkpointer, self.cfg.train.checkpointer.period),
        ]
        # add your hook according to your own needs
        # NOTE: all hooks will be called sequentially
        ret.append(myhook())

        if dist.is_main_process():
            ret.append(hooks.PeriodicWriter(self.build_writers(), self.cfg.train.log_period))
        return ret


logger = logging.getLogger("libai." + __name__)


def main(args):
    cfg = LazyConfig.load(args.config_file)
    cfg = LazyConfig.apply_overrides(cfg, args.opts)
    default_setup(cfg, args)
    flow.manual_seed(cfg.train.seed)
    np.random.seed(cfg.train.seed)
    random.seed(cfg.train.seed)

    trainer = MyTrainer(cfg)
    trainer.train()
    assert trainer._trainer.previous_output is not None
    print("ended at", trainer.iter)


if __name__ == "__main__":
    args = default_argument_parser().parse_args()
    main(args)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    project.write(tmp_path)
    (tmp_path / "path_to_myhook.py").write_text(MYHOOK)
    (tmp_path / "path_to_mytrainer.py").write_text(MYTRAINER.replace("{extra}", ""))
    (tmp_path / "tools" / "my_train_net.py").write_text(MY_TRAIN_NET)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("line_parts", "path_to_myhook", "path_to_mytrainer"):
        sys.modules.pop(name, None)
    project.forget_loggers()


def run(*words: str) -> int:
    return main(["exec", "tools/my_train_net.py", "--config-file", "config.py", *words])


def test_the_scripts_own_trainer_and_hook_train(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run("train.train_iter=8", "train.output_dir=mine") == 0
    told = capfd.readouterr().out
    assert "start training at 0" in told
    assert "iteration 0!" in told
    assert "end training ad 8" in told
    assert "ended at 8" in told
    assert (folder / "mine" / "last_checkpoint").read_text() == "model_final"
    lines = [json.loads(line) for line in (folder / "mine" / "metrics.json").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [3, 7]


def test_a_step_with_two_arguments_works_too(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = MYTRAINER.replace("{extra}", ', input_placement_device: str = "cuda"')
    (folder / "path_to_mytrainer.py").write_text(text)
    assert run("train.train_iter=3") == 0
    assert "ended at 3" in capfd.readouterr().out


def test_the_plain_script_trains_what_the_config_says(folder: Path) -> None:
    assert main(["exec", "tools/train_net.py", "--config-file", "config.py", "train.train_iter=4"]) == 0
    assert (folder / "out" / "model_final" / "model").is_file()


def test_the_train_loop_calls_hooks_around_steps_and_after_train_in_any_case() -> None:
    from libai.engine.trainer import HookBase, TrainerBase

    order: list[str] = []

    class Noting(HookBase):
        def before_train(self) -> None:
            order.append("before_train")

        def after_train(self) -> None:
            order.append("after_train")

        def before_step(self) -> None:
            order.append(f"before_step {self.trainer.iter}")

        def after_step(self) -> None:
            order.append(f"after_step {self.trainer.storage.iter}")

    class Failing(TrainerBase):
        def run_step(self) -> None:
            order.append("run_step")
            if self.iter == 1:
                raise RuntimeError("second step")

    trainer = Failing()
    trainer.register_hooks([Noting()])
    with pytest.raises(RuntimeError, match="second step"):
        trainer.train(0, 3)
    assert order == [
        "before_train", "before_step 0", "run_step", "after_step 0", "before_step 1", "run_step", "after_train",
    ]  # fmt: skip


def test_the_base_hook_has_the_four_points_of_the_tutorial() -> None:
    from libai.engine.trainer import HookBase

    for name in ("before_train", "after_train", "before_step", "after_step"):
        assert getattr(HookBase(), name)() is None


def test_a_model_puts_metrics_of_its_own(folder: Path) -> None:
    text = (folder / "line_parts.py").read_text()
    text = text.replace(
        "        if not self.training:",
        "        if self.training:\n"
        "            value = (predicted > labels).float().mean()\n"
        "            storage = get_event_storage()\n"
        '            storage.put_scalar("some_accuracy", value)\n'
        "        if not self.training:",
    )
    (folder / "line_parts.py").write_text("from libai.utils.events import get_event_storage\n" + text)
    assert run("train.train_iter=4") == 0
    line = json.loads((folder / "out" / "metrics.json").read_text().splitlines()[0])
    assert 0.0 <= line["some_accuracy"] <= 1.0
