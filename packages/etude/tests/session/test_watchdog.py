from __future__ import annotations

import re
import threading
import time

import pytest
import torch

from etude.core import loop
from etude.core.hook import Hook, HookTable
from etude.core.run import Run
from etude.session.watch.watchdog import Watchdog


class Blocking(Hook):
    """Does not come back until it was noticed."""

    def __init__(self, noticed: threading.Event) -> None:
        self.noticed = noticed

    def after_step(self, run: Run) -> None:
        if run.done == 3:
            self.wait_for_the_network()

    def wait_for_the_network(self) -> None:
        assert self.noticed.wait(600)


def make_run(*hooks: Hook, pause: float = 0.0) -> Run:
    data = {"train": [torch.zeros(1)] * 5}
    return Run(
        model=torch.nn.Linear(1, 1), update=lambda run, batch: time.sleep(pause), loop=loop.epochs, max_epochs=1,
        hooks=HookTable(hooks), data=data, steps_per_epoch=5, total_steps=5,
    )  # fmt: skip


def test_a_hook_that_blocks_is_named_with_its_stack_and_only_once() -> None:
    noticed, lines = threading.Event(), []

    def say(line: str) -> None:
        lines.append(line)
        if "wait_for_the_network" in line:
            noticed.set()

    run = make_run(Blocking(noticed))
    watchdog = Watchdog(run, say=say, patience=1.0)
    watchdog.start()
    loop.fit(run)
    watchdog.stop()
    assert run.step == 5
    said = [line for line in lines if "hook Blocking" in line]  # a busy machine may have stood still elsewhere, too
    assert re.fullmatch(r"nothing has moved for \d+ s, after 3 steps: hook Blocking at after_step", said[0])
    assert len(said) == 1
    assert any("wait_for_the_network" in line for line in lines)


@pytest.mark.parametrize("pause", [0.02])
def test_a_run_that_moves_is_left_in_peace(pause: float) -> None:
    lines: list[str] = []
    run = make_run(pause=pause)
    watchdog = Watchdog(run, say=lines.append, patience=600.0)
    watchdog.start()
    loop.fit(run)
    watchdog.stop()
    assert lines == []
