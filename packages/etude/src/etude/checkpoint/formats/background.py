"""Writes another system's own files in the background: training waits for one copy of memory only.

.. code-block:: text

    training   copy of the state ── next step ── next step ── …         the next save waits for the one before
    thread                      torch.save · fsync · rename ── pointer to the file ── old files removed ── notes

Hooks and scripts of real projects read such a file right after it was saved. So a save is deferred only if no user
code runs before the file is complete: the dialect's own periodic hook asks for it
(:meth:`BackgroundWriter.deferring`), and all hooks of the run, and the functions that they call, are Étude's
(:func:`all_ours`). Training waits for all other saves (at the end, on a stop or an error, of a best score), and for
states that :func:`~etude.checkpoint.capture.capture` cannot copy: those with user-defined objects, and with tensors
that are views or not in host memory.

The same thread does what follows a save (:meth:`BackgroundWriter.then`), in order, so that no pointer names an
incomplete file, and no file is deleted before its successor exists. One save is in flight at most. Everything in
Étude that reads checkpoints waits for it first (:func:`wait`), and so does the end of a run, also after an error. A
failed write leaves no file; :meth:`BackgroundWriter.flush` reports it to the training thread before the next save or
at the end.

The bytes are those that ``torch.save`` writes for the original: the copy has the same containers, in the same order,
and each tensor has its own memory again, or shares it with the same ones.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from types import BuiltinFunctionType
from typing import Any

import torch

from etude.checkpoint.capture import DTYPE, SHAPE, Capture, Forms, capture
from etude.checkpoint.write import wait_for
from etude.errors import SaveError
from etude.errors.own_code import is_own

Failed = Callable[[SaveError], None]
#: Seconds that a save is waited for.
PATIENCE = 600.0
_IS_CPU, _LEARNS = map(attrgetter, ("is_cpu", "requires_grad"))
_log = logging.getLogger("etude.checkpoint")


def all_ours(actors: Iterable[object]) -> bool:
    """Return whether the classes of all ``actors`` are Étude's own, and the functions that they were given, too."""
    return all(_is_ours(type(actor)) and all(map(_is_ours, _functions_of(actor))) for actor in actors)


def _functions_of(actor: object) -> Iterator[object]:
    """Yield what an actor such as ``CallbackHook(before_step=…)`` calls."""
    for value in getattr(actor, "__dict__", {}).values():
        if callable(value) and not isinstance(value, type | torch.nn.Module | BuiltinFunctionType):
            yield value.func if isinstance(value, partial) else value


def _is_ours(code: object) -> bool:
    return is_own(getattr(code, "__module__", ""))


class BackgroundWriter:
    """The saves of one run, each of which may be written while training goes on."""

    def __init__(self) -> None:
        self._job: _Job | None = None
        self._failed: Failed | None = None
        self._is_running = False
        #: Memory for copies, kept from save to save, and what it was made for.
        self._copies: list[torch.Tensor] = []
        self._forms = Forms([])

    @contextmanager
    def running(self, say: Callable[[str], object]) -> Iterator[None]:
        """Allow saves to be deferred inside the block, and finish them at its end.

        After an error of the block, that of a save only goes to ``say``.
        """
        self._is_running = True
        try:
            yield
        except BaseException:
            self._finish(say)
            raise
        else:
            self.flush()
        finally:
            self._is_running, self._copies, self._forms = False, [], Forms([])

    @contextmanager
    def deferring(self, failed: Failed, *, only_if: bool) -> Iterator[None]:
        """Let a save inside the block be written later; :meth:`flush` calls ``failed`` if it could not be."""
        self._failed = failed if only_if and self._is_running else None
        try:
            yield
        finally:
            self._failed = None

    def write(self, write: Callable[[Any], None], content: Any) -> None:
        """Call ``write(content)``, now or, with a copy, in the background."""
        self.flush()
        failed = self._failed
        if failed is None or (taken := self._copied(content)) is None:
            write(content)
            return
        wait()  # another run of this process may have one in flight
        copy = taken.content
        self._job = _Job(lambda: write(copy), failed)
        self._job.begin()

    def then(self, call: Callable[[], object]) -> None:
        """Call ``call`` once the save in flight is written, and not if that fails; at once if there is none."""
        job = self._job
        if job is None or (not job.takes(call) and job.error is None):
            call()

    def flush(self) -> None:
        """Wait for the save in flight, and raise or handle what went wrong."""
        job, self._job = self._job, None
        if job is None:
            return
        job.wait()
        if isinstance(job.error, SaveError):
            job.failed(job.error)
        elif job.error is not None:
            raise job.error

    def _finish(self, say: Callable[[str], object]) -> None:
        try:
            self.flush()
        except Exception as error:
            say(str(error))

    def _copied(self, content: Any) -> Capture | None:
        """Return a copy of ``content``; None if it holds what cannot be copied here."""
        taken = capture("", content)
        if taken is None or not _are_usual(taken.sources):
            return None
        with torch.inference_mode(False), torch.no_grad():  # memory that may be written to whoever saves next
            if not self._forms.fit(taken.sources):
                copies = [torch.empty_like(tensor) for tensor in taken.sources]
                if not _are_alike(copies, taken.sources):
                    return None
                self._copies, self._forms = copies, Forms(taken.sources, DTYPE, SHAPE, torch.Tensor.stride)
            if taken.sources:
                torch._foreach_copy_(self._copies, taken.sources)
        taken.use(self._copies)
        return taken


def _are_usual(tensors: list[torch.Tensor]) -> bool:
    """Return whether torch writes the numbers of each tensor and nothing else: all of its memory, on the host."""
    return (
        set(map(type, tensors)) <= {torch.Tensor}
        and all(map(_IS_CPU, tensors))
        and not any(map(_LEARNS, tensors))
        and all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors)
    )


def _are_alike(copies: list[torch.Tensor], tensors: list[torch.Tensor]) -> bool:
    """Return whether the numbers of each tensor lie in memory as those of its copy, and in separate memory."""
    filled = [tensor for tensor in tensors if tensor.numel()]
    own = len({tensor.data_ptr() for tensor in filled}) == len(filled)
    return own and all(copy.stride() == tensor.stride() for copy, tensor in zip(copies, tensors, strict=True))


#: The save that is in flight in this process.
_in_flight: _Job | None = None


def wait() -> None:
    """Return when no file is being written in the background. :meth:`BackgroundWriter.flush` raises what went wrong."""
    job = _in_flight
    # What follows a save in its own thread reads checkpoints, too, and would wait for itself.
    if job is not None and job.ident != threading.get_ident():
        job.wait()


def _forget() -> None:
    """Forget the save in a forked process, such as a data worker: no thread writes there."""
    global _in_flight
    _in_flight = None


os.register_at_fork(after_in_child=_forget)


class _Job:
    """Writes a file and does what follows, in a thread."""

    def __init__(self, write: Callable[[], object], failed: Failed) -> None:
        self.failed = failed
        self.error: BaseException | None = None
        self._calls: deque[Callable[[], object]] = deque([write])
        self._lock, self._over = threading.Lock(), threading.Event()
        self._may_begin = threading.Event()
        self._thread = threading.Thread(target=self._run, name="etude-save")

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def begin(self) -> None:
        global _in_flight
        _in_flight = self
        self._thread.start()
        self._may_begin.set()

    def takes(self, call: Callable[[], object]) -> bool:
        """Have ``call`` done after what is to be done already; False if all of that is over."""
        with self._lock:
            if self._over.is_set():
                return False
            self._calls.append(call)
            return True

    def wait(self) -> None:
        """Return when everything is done; say so when that takes long, and give up in the end."""
        wait_for(self._over, "a save", patience=PATIENCE, say=_log.warning)

    def _run(self) -> None:
        # `Thread.start` returns to training only when this thread lets go of the interpreter.
        self._may_begin.wait()
        try:
            while (call := self._next()) is not None:
                call()
        except BaseException as error:
            self.error = error
        finally:
            self._end()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if not self._calls:
                self._over.set()
                return None
            return self._calls.popleft()

    def _end(self) -> None:
        global _in_flight
        with self._lock:
            self._over.set()
            self._calls.clear()
        if _in_flight is self:
            _in_flight = None
