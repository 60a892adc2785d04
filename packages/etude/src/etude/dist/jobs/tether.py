"""Ends a process when the one that started it is gone, however that happened. Imports no torch.

Two ways, for neither covers every moment. The kernel of Linux kills a process whose parent dies, even one that is about
to end or that never lets another thread run. A thread sees the end of a pipe: on other systems, too, and if the parent
was gone before the kernel was asked.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of sys/prctl.h


def die_with_parent() -> None:
    """Let the kernel kill this process when the thread that started it ends. Other systems than Linux do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def follow_parent(code: int) -> None:
    """End this process of :mod:`multiprocessing` with ``code`` when the process that asked for it is gone, until its
    very last moment."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(code)

    threading.Thread(target=wait, name="etude-tether", daemon=True).start()
