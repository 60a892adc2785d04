"""Runs ``etude train`` as a job of SLURM that is queued again until it has finished, through submitit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.dist.world import first_host
from etude.errors import UserError

#: The exit code of a run that was saved to be started again.
REQUEUE = 75
_PORT = 29_400


class Training:
    """One task a machine: the command, which resumes the run in its folder whenever the job is started again."""

    def __init__(self, words: Sequence[str], nodes: int = 1) -> None:
        self.words, self.nodes = list(words), nodes
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        self._child = subprocess.Popen([sys.executable, "-m", "etude", *self.words, *self._meeting_place()])
        code = self._child.wait()
        if code == REQUEUE:
            self._queue_again()
        if code:
            raise RuntimeError(f"etude {' '.join(self.words)} ended with code {code}")

    def checkpoint(self) -> Any:
        """Called by submitit when the time of the job is nearly up or it is preempted: save, then start again."""
        from submitit.helpers import DelayedSubmission

        if self._child is not None:
            self._child.send_signal(signal.SIGUSR1)
            self._child.wait()
        return DelayedSubmission(Training(self.words, self.nodes))

    def _meeting_place(self) -> list[str]:
        if self.nodes == 1:
            return []
        host = first_host(os.environ.get("SLURM_JOB_NODELIST", "localhost"))
        return ["--nnodes", str(self.nodes), "--rdzv-endpoint", f"{host}:{_PORT}"]

    def _queue_again(self) -> None:
        """The run has saved itself (``--max-time``, a signal to it alone). The first task speaks for all."""
        import submitit

        environment = submitit.JobEnvironment()
        if environment.global_rank == 0:
            environment._requeue(0)
        raise SystemExit(REQUEUE)


def submit(
    words: Sequence[str], folder: Path, *, cluster: str, nodes: int, minutes: int, options: Mapping[str, Any]
) -> str:
    """Queue ``etude WORDS`` and return the job's number; ``cluster`` is ``slurm``, or ``local`` to try it here."""
    try:
        import submitit
    except ImportError as error:
        raise UserError("etude submit --slurm needs submitit: pip install 'etude[slurm]'") from error
    try:
        executor = submitit.AutoExecutor(folder=str(folder / "jobs"), cluster=cluster)
        executor.update_parameters(name="etude", nodes=nodes, tasks_per_node=1, timeout_min=minutes, **options)
    except (RuntimeError, ValueError, NameError, TypeError, AssertionError) as error:
        raise UserError(f"submitit refuses this job: {error}") from error
    return str(executor.submit(Training(words, nodes)).job_id)
