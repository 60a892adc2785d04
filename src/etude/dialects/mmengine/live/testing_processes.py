"""A test case whose methods run in several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Any
from unittest import TestCase


class MultiProcessTestCase(TestCase):
    """``setUp`` calls ``_fork_processes()`` (or ``_spawn_processes()``); then every process runs the test as ``rank``.

    The process of the test runner has rank -1; there the test waits for the others and fails if one of them did.
    """

    MAIN_PROCESS_RANK = -1
    TIMEOUT = 100.0

    def __init__(self, method_name: str = "runTest") -> None:
        super().__init__(method_name)
        method = getattr(self, method_name, None)
        if method is not None:
            setattr(self, method_name, self._join_or_run(method))

    @property
    def world_size(self) -> int:
        return 2

    def setUp(self) -> None:
        super().setUp()
        self.rank = self.MAIN_PROCESS_RANK
        self.processes: list[Any] = []
        self.file_name = os.path.join(tempfile.mkdtemp(), "rendezvous")

    def tearDown(self) -> None:
        super().tearDown()
        for process in self.processes:
            process.kill()
        self.processes = []

    def _fork_processes(self) -> None:
        forking: Any = multiprocessing.get_context("fork")
        for rank in range(self.world_size):
            process = forking.Process(target=self._run, args=(rank,), name=f"process {rank}")
            process.start()
            self.processes.append(process)

    _spawn_processes = _fork_processes

    def _run(self, rank: int) -> None:
        self.rank = rank
        code = 1
        try:
            getattr(self, self._testMethodName)()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _join_or_run(self, method: Callable[[], None]) -> Callable[[], None]:
        def join_or_run() -> None:
            if self.rank != self.MAIN_PROCESS_RANK:
                method()
                return
            for process in self.processes:
                process.join(self.TIMEOUT)
                self.assertEqual(process.exitcode, 0, f"{process.name} of {self._testMethodName} failed")

        return join_or_run
