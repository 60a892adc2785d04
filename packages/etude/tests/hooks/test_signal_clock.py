from __future__ import annotations

import os
import signal

from etude.hooks.signals import Signals
from tests import zygote

PROGRAM = """
import ctypes, os, signal, threading
from etude.hooks.signals import Signals

Signals(grace=0.2).install()
# Another thread takes the signal, so that the call below is not interrupted: as when torch computes.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGTERM]).start()
ctypes.CDLL(None).sleep(600)
"""


def test_the_grace_begins_while_the_main_thread_is_in_one_long_call():
    done = zygote.run("-c", PROGRAM)
    assert done.returncode == 143, done.stderr
    assert "not done 0.2 s after SIGTERM; ending without a save" in done.stderr


def test_a_signal_to_a_forked_child_starts_no_clock_in_its_parent():
    program = """
import multiprocessing, time
from etude.hooks.signals import Signals

signals = Signals(grace=0.2)
signals.install()
child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
child.start()
child.terminate()
time.sleep(0.2)
child.kill()
child.join()
time.sleep(1)
print(signals._timer)
"""
    done = zygote.run("-c", program)
    assert done.stdout.strip() == "None", done.stderr


def test_a_signal_to_all_processes_of_a_run_leaves_its_data_workers_alone():
    """``timeout`` and schedulers send it so, and the run needs its workers to finish the step."""
    program = """
import os, signal, subprocess, time
import torch
from etude.hooks.signals import Signals

class Slow(torch.utils.data.Dataset):
    def __len__(self): return 6
    def __getitem__(self, index): time.sleep(0.05); return index

os.setsid()
signals = Signals()
signals.install()
loader = torch.utils.data.DataLoader(Slow(), num_workers=2, persistent_workers=True, multiprocessing_context="fork")
seen = []
for index in loader:
    if not seen:
        subprocess.run(["sh", "-c", f"kill -TERM -{os.getpgid(0)}"], start_new_session=True)
    seen.append(int(index))
workers = loader._iterator._workers
print(seen, signals.received, [worker.is_alive() for worker in workers])
workers[0].terminate()
workers[0].join()
print(workers[0].exitcode)
os.kill(workers[1].pid, signal.SIGKILL)
os._exit(0)
"""
    done = zygote.run("-c", program)
    assert done.stdout.splitlines() == ["[0, 1, 2, 3, 4, 5] SIGTERM [True, True]", "0"], done.stderr


def test_ctrl_c_says_that_the_step_is_finished_first(capfd):
    signals = Signals()
    signals.install()
    try:
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signals.restore()
    assert signals.received == "SIGINT"
    assert "stopping after this step; Ctrl-C again to quit without saving" in capfd.readouterr().err
