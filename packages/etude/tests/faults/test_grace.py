"""A signal whose step does not end in time ends the process all the same; older checkpoints stay."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from etude.hooks.signals import Signals
from tests import zygote

PARTS = """\
import time, etude

@etude.HOOKS.register
class Stuck(etude.Hook):
    def after_step(self, run):
        if run.done == 4:
            open("stuck", "w").close()
            time.sleep(600)
"""
CONFIG = """\
imports: [parts.py]
model: {type: MLP, sizes: [64, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 512}}
optim: {type: SGD, lr: 0.1}
train: {epochs: 5, threads: 1}
hooks: [Stuck]
checkpoint: {every: 1step}
"""


def test_a_step_that_does_not_end_is_left_after_the_grace(workdir: Path):
    Path("parts.py").write_text(PARTS)
    Path("c.yaml").write_text(CONFIG)
    child = zygote.start("-m", "etude", "train", "c.yaml", "--folder", "run", "--grace", "1s")
    saved = Path("run/checkpoints/step-000000003")
    while not (os.path.exists("stuck") and saved.is_dir()) and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    _, said = child.communicate()
    assert child.returncode == 143, said
    assert "not done 1 s after SIGTERM" in said
    assert saved.is_dir()


def test_a_signal_at_the_end_of_a_run_does_not_end_the_program_later():
    """The thread that starts the clock may hear of the signal only after the run has ended."""
    child = os.fork()
    if child == 0:
        made = [Signals(grace=600) for _ in range(100)]
        for signals in made:
            signals.install()
            os.kill(os.getpid(), signal.SIGTERM)
            signals.restore()
        for thread in threading.enumerate():
            if thread.name == "etude-signals":
                thread.join()  # it has heard of everything
        os._exit(any(signals._timer is not None and not signals._timer.finished.is_set() for signals in made))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
