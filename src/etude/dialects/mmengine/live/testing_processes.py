"""A test case whose methods run in several processes at once."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import SkipTest, TestCase


class TestSkip(NamedTuple):
    """How a process says that its test cannot run here."""

    exit_code: int
    message: str


TEST_SKIPS = {
    "backend_unavailable": TestSkip(20, "The backend of the process group is not available."),
    "no_cuda": TestSkip(21, "There is no CUDA device."),
    "multi-gpu-2": TestSkip(22, "There are less than two CUDA devices."),
    "generic": TestSkip(23, "The test was skipped in its processes; their output says why."),
}


class MultiProcessTestCase(TestCase):
    """``setUp`` calls ``_fork_processes()`` (or ``_spawn_processes()``); then every process runs the test as ``rank``.

    The process of the test runner has rank -1; there the test waits for the others and fails if one of them did.
    """

    MAIN_PROCESS_RANK = -1
    TEST_ERROR_EXIT_CODE = 10

    def __init__(self, method_name: str = "runTest", methodName: str = "runTest") -> None:
        name = method_name if methodName == "runTest" else methodName
        super().__init__(name)
        method = getattr(self, name, None)
        if method is not None:
            setattr(self, name, self._join_or_run(method))

    @property
    def world_size(self) -> int:
        return 2

    @property
    def timeout(self) -> int:
        """Seconds after which a test that hangs has failed."""
        return 100

    @property
    def is_master(self) -> bool:
        return self.rank == 0

    def prepare_subprocess(self) -> None:
        """What every process does before its test."""

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
        code = self.TEST_ERROR_EXIT_CODE
        try:
            self.prepare_subprocess()
            self.run_test(self._testMethodName, None)
            code = 0
        except SkipTest as skipped:
            print(f"process {rank} skips {self._testMethodName}: {skipped}", flush=True)
            code = TEST_SKIPS["generic"].exit_code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def run_test(self, test_name: str, parent_pipe: Any) -> None:
        """Run the test in its process. Overridden to prepare what every process needs; ``parent_pipe`` is not used."""
        getattr(self, test_name)()

    def _current_test_name(self) -> str:
        return self.id().split(".")[-1]

    def _join_or_run(self, method: Callable[[], None]) -> Callable[[], None]:
        def join_or_run() -> None:
            if self.rank != self.MAIN_PROCESS_RANK:
                method()
                return
            for process in self.processes:
                process.join(self.timeout)
                self._judge(process)

        return join_or_run

    def _judge(self, process: Any) -> None:
        for skip in TEST_SKIPS.values():
            if process.exitcode == skip.exit_code:
                raise SkipTest(skip.message)
        self.assertEqual(process.exitcode, 0, f"{process.name} of {self._testMethodName} failed")
