"""A signal to a script that calls a runner itself: the step is finished and saved, and the script ends."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.mmcv1.toys import Net, assert_same_bits, noisy_loader, weights
from tests.mmengine import toy

ENDS = {"SIGTERM": (SystemExit, 143), "SIGUSR1": (SystemExit, 75), "SIGINT": (KeyboardInterrupt, None)}


@pytest.fixture(autouse=True, params=["Ctrl-C", "nohup"])
def usual_handlers(request: pytest.FixtureRequest) -> Iterator[None]:
    """The handlers of a script, in a terminal or in the background, where Ctrl-C is ignored."""
    interrupt = signal.SIG_IGN if request.param == "nohup" else signal.default_int_handler
    handlers = {signal.SIGTERM: signal.SIG_DFL, signal.SIGUSR1: signal.SIG_DFL, signal.SIGINT: interrupt}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Sends(toy.Hook):
    """Sends a signal to this process after the second iteration."""

    def __init__(self, name: str) -> None:
        self.number = getattr(signal, name)

    def after_train_iter(self, runner: Any, *args: Any, **kwargs: Any) -> None:
        if runner.iter == 1:
            os.kill(os.getpid(), self.number)


def mmcv_runner(folder: Path) -> Any:
    from mmcv.runner import EpochBasedRunner, set_random_seed

    set_random_seed(5)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    runner = EpochBasedRunner(
        model, optimizer=optimizer, work_dir=str(folder), logger=logging.getLogger("tests"), max_epochs=2
    )
    runner.register_training_hooks({"policy": "fixed"}, {"grad_clip": None}, {"interval": 1})
    return runner


@pytest.mark.parametrize("name", list(ENDS))
def test_a_signal_ends_a_script_with_an_mmcv_runner_after_a_save_and_it_resumes_exactly(name, tmp_path):
    whole = mmcv_runner(tmp_path / "whole")
    whole.run([noisy_loader()], [("train", 1)])
    kind, code = ENDS[name]
    runner = mmcv_runner(tmp_path / "cut")
    runner.register_hook(_mmcv_sender(name))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(kind) as ended:
        runner.run([noisy_loader()], [("train", 1)])
    assert code is None or ended.value.code == code
    assert signal.getsignal(signal.SIGTERM) is before
    assert (tmp_path / "cut" / "stopped_iter_2.pth").exists() and runner.iter == 2
    again = mmcv_runner(tmp_path / "cut")
    again.resume(str(tmp_path / "cut" / "latest.pth"))
    again.run([noisy_loader()], [("train", 1)])
    assert_same_bits(weights(whole), weights(again))


def _mmcv_sender(name: str) -> Any:
    from mmcv.runner import Hook

    class Sender(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 1:
                os.kill(os.getpid(), getattr(signal, name))

    return Sender()


def test_a_signal_ends_a_script_with_an_mmengine_runner_after_a_save_and_it_resumes_exactly(tmp_path):
    whole = toy.make(tmp_path / "whole")
    whole.train()
    cut = toy.make(tmp_path / "cut", custom_hooks=[Sends("SIGTERM")])
    with pytest.raises(SystemExit) as ended:
        cut.train()
    assert ended.value.code == 143 and (tmp_path / "cut" / "iter_2.pth").exists()
    again = toy.make(tmp_path / "cut", resume=True)
    again.train()
    assert again.iter == whole.iter
    assert_same_bits(weights(whole), weights(again))


def test_a_handler_of_the_script_stays(tmp_path):
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        runner = toy.make(tmp_path, custom_hooks=[Sends("SIGTERM")])
        runner.train()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM] and runner.iter == runner.max_iters


def test_a_runner_in_another_thread_trains_without_handlers(tmp_path):
    runner = toy.make(tmp_path)
    thread = threading.Thread(target=runner.train)
    thread.start()
    thread.join()
    assert runner.iter == runner.max_iters
