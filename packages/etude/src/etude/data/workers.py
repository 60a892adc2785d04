"""Data workers: processes that make batches ahead of the run.

Task ``n`` goes to worker ``n % workers`` and is taken from it in that order, so what arrives does not depend on who is
fast. Every wait watches the worker itself: one that dies is noticed at once, one that hangs after ``deadline`` seconds.
(torch's own loader raises from a signal handler when a worker dies, at any line of the main thread, a save included.)
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import selectors
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor

from etude.data.fetch import Fetched, Fetcher
from etude.data.order import Task
from etude.data.shared_memory import Area, Receiver, Sender
from etude.dist.jobs import tether
from etude.errors import DataError

Make = Callable[[Task], Fetched]
#: A pipe takes several messages of so many bytes before anybody reads them.
_ROOM = 1 << 15


class Worker:
    """One process and the two ends of its pipe. ``pending`` are the tasks that it has not answered yet."""

    def __init__(self, number: int, make: Make, context: Any) -> None:
        self.number, self.make, self.context = number, make, context
        self.pending: deque[Task] = deque()
        self.start()

    def start(self) -> None:
        self.connection, theirs = self.context.Pipe()
        self._area = Area()
        self._received = Receiver(self._area)
        self.process = self.context.Process(
            target=_serve,
            args=(self.number, self.make, theirs, self._area, threading.current_thread() is threading.main_thread()),
            daemon=True,
            name=f"etude-data-{self.number}",
        )
        self.process.start()
        # While this process holds that end, too, the death of the worker would not close the pipe.
        theirs.close()
        self._selector = _watch(self.connection, self.process.sentinel)
        self._writing: threading.Thread | None = None

    def give(self, task: Task) -> None:
        self.pending.append(task)
        self._send(task)

    def _send(self, task: Task) -> None:
        if isinstance(task.indices, Tensor):  # many small numbers: a list is sent sooner than shared memory
            task = task._replace(indices=task.indices.tolist())
        with contextlib.suppress(OSError):  # a dead worker is noticed, and named, where its answer is awaited
            self._write(pickle.dumps((self._received.freed(), task)))

    def _write(self, message: bytes) -> None:
        """Send without waiting for the worker, which may itself be waiting to hand over an answer.

        The pipe takes the messages of all tasks that are given ahead, unless a batch has very many samples. Such a
        message is written by a thread.
        """
        if self._writing is not None:
            self._writing.join()
            self._writing = None
        if len(message) <= _ROOM:
            self.connection.send_bytes(message)
            return
        self._writing = threading.Thread(target=_quietly, args=(self.connection.send_bytes, message), daemon=True)
        self._writing.start()

    def take(self, deadline: float) -> Fetched | None:
        """Return the answer to the oldest task; None if the process died. Raise TimeoutError after ``deadline``
        seconds."""
        ready = [key.fileobj for key, _ in self._selector.select(deadline)]
        if not ready:
            raise TimeoutError
        # A worker that died after its answer is ready on both; the answer counts.
        if self.connection not in ready:
            return None
        try:
            answer: Fetched = self._received.value(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        self.pending.popleft()
        return answer

    def restart(self) -> None:
        """Replace a dead process with a new one that gets the same tasks; seeds per sample give the same result."""
        self._close()
        self.start()
        for task in self.pending:
            self._send(task)

    def fate(self) -> str:
        # The pipe closes a moment before the exit code is there.
        self.process.join(timeout=2.0)
        code = self.process.exitcode
        if code is None:
            return "closed its pipe"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.send_bytes(pickle.dumps(([], None)))
        self.process.join(timeout=0.5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(timeout=5.0)
        self._close()

    def _close(self) -> None:
        self._selector.close()
        self.connection.close()
        self._area.close()


class Pool:
    """``workers`` processes that stay between epochs. Each gets ``ahead`` tasks before they are needed."""

    def __init__(
        self,
        make: Make,
        workers: int,
        *,
        ahead: int = 2,
        deadline: float = 300.0,
        restarts: int = 0,
        start_method: str | None = None,
    ) -> None:
        context = multiprocessing.get_context(start_method)
        self.ahead, self.deadline, self.restarts = ahead, deadline, restarts
        self.workers = [Worker(number, make, context) for number in range(workers)]

    def run(self, tasks: Iterator[Task]) -> Iterator[Fetched]:
        """Yield the answers to ``tasks``, in order."""
        self._forget()
        for turn in range(self.ahead * len(self.workers)):
            self._give(turn, tasks)
        turn = 0
        while (worker := self.workers[turn % len(self.workers)]).pending:
            answer = self._take(worker)
            self._give(turn, tasks)  # before the answer is used, so that the worker is busy meanwhile
            yield answer
            turn += 1

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []

    def _give(self, turn: int, tasks: Iterator[Task]) -> None:
        task = next(tasks, None)
        if task is not None:
            self.workers[turn % len(self.workers)].give(task)

    def _forget(self) -> None:
        """Throw away what was made for an epoch that was broken off."""
        for worker in self.workers:
            while worker.pending:
                self._take(worker)

    def _take(self, worker: Worker) -> Fetched:
        task = worker.pending[0]
        while True:
            try:
                answer = worker.take(self.deadline)
            except TimeoutError:
                raise DataError(self._hung(worker, task)) from None
            if answer is not None:
                return answer
            if self.restarts <= 0:
                raise DataError(_died(worker, task))
            self.restarts -= 1
            worker.restart()

    def _hung(self, worker: Worker, task: Task) -> str:
        pid = worker.process.pid
        if pid is not None:
            os.kill(pid, signal.SIGUSR1)  # prints its stack, see _serve
        return (
            f"data worker {worker.number} (pid {pid}) has not made {task.place} "
            f"within {self.deadline:g} s; its stack is on stderr"
        )


def _died(worker: Worker, task: Task) -> str:
    fate = worker.fate()
    code = worker.process.exitcode
    hint = {
        -signal.SIGKILL: "out of memory? try fewer workers or smaller batches",
        -signal.SIGBUS: "not enough shared memory? enlarge /dev/shm or use fewer workers",
    }.get(code or 0, "workers=0 shows its error in this process")
    return f"data worker {worker.number} (pid {worker.process.pid}) {fate} while making {task.place}; {hint}"


def _quietly(send: Callable[[bytes], None], message: bytes) -> None:
    with contextlib.suppress(OSError):  # as above
        send(message)


def _watch(connection: Connection, sentinel: Any) -> selectors.BaseSelector:
    """Return what waits for a message or for the end of a process."""
    selector: selectors.BaseSelector = getattr(selectors, "PollSelector", selectors.SelectSelector)()
    selector.register(connection, selectors.EVENT_READ)
    selector.register(sentinel, selectors.EVENT_READ)
    return selector


def _serve(number: int, make: Make, connection: Connection, area: Area, is_tied: bool) -> None:
    """Answer tasks in a worker until the pipe closes. Ctrl-C is for the process of the run."""
    if is_tied:  # another thread may end long before the run does
        tether.die_with_parent()
    tether.follow_parent(0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A forked worker has the run's handler, which would only note the signal.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.register(signal.SIGUSR1, file=sys.__stderr__ or 2, all_threads=True)
    # As in torch's own workers: several processes share the cores.
    torch.set_num_threads(1)
    sender = Sender(area)
    timed = make if isinstance(make, Fetcher) else None
    if timed is not None:
        timed.timed = True
    while True:
        try:
            freed, task = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        if task is None:
            return
        sender.free(freed)
        answer = make(task)
        answer.slowest = None if timed is None else timed.slowest(task)
        answer.error = None  # words cross over; exceptions of the user may not be picklable
        try:
            said = sender.message(answer)
        except Exception as error:
            said = sender.message(Fetched(failure=f"{task.place} cannot leave its worker: {error}"))
        try:
            connection.send_bytes(said)
        except OSError:
            return
