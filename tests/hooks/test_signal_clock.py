from __future__ import annotations

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
