"""Runs ``etude train`` as a SLURM job that is requeued until it has finished, through submitit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from etude.dist.jobs import secret
from etude.dist.world import first_host
from etude.errors import REQUEUE, UserError

#: submitit gives up after 3 time limits unless it is given another number: fewer than a long training takes.
_TIME_LIMITS = 10_000
_PORT = 29_400


class Training:
    """One task per machine: the command, which resumes the run in its folder each time the job starts."""

    def __init__(self, argv: Sequence[str], nodes: int = 1) -> None:
        self.argv, self.nodes = list(argv), nodes
        self.secret = secret.draw()
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self) -> None:
        command = [sys.executable, "-m", "etude", *self.argv, *self._meeting_place()]
        environment = os.environ | ({secret.NAME: self.secret} if self.nodes > 1 else {})
        self._child = subprocess.Popen(command, preexec_fn=_ignore_warning, env=environment)
        self._wait()
        code = self._child.wait()
        if code == REQUEUE:
            self._queue_again()
        if code:
            raise RuntimeError(f"etude {' '.join(self.argv)} ended with code {code}")

    def checkpoint(self) -> Any:
        """Save and requeue. submitit calls this when the job's time is nearly up or when it is preempted."""
        from submitit.helpers import DelayedSubmission

        if self._child is not None:
            with suppress(ProcessLookupError, ChildProcessError):  # it has ended by itself
                os.kill(self._child.pid, signal.SIGUSR1)
                self._wait()
        return DelayedSubmission(Training(self.argv, self.nodes))

    def _wait(self) -> None:
        """Wait for the end of the command, and leave its exit code to be read.

        submitit calls :meth:`checkpoint` in a signal handler, inside of this very wait. ``Popen.wait`` has a lock and
        would wait for itself there.
        """
        assert self._child is not None
        os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT)

    def _meeting_place(self) -> list[str]:
        if self.nodes == 1:
            return []
        host = first_host(os.environ.get("SLURM_JOB_NODELIST", "localhost"))
        return ["--nnodes", str(self.nodes), "--rdzv-endpoint", f"{host}:{_PORT}"]

    def _queue_again(self) -> None:
        """Requeue the job: the run has saved itself (``--max-time``, a signal to it alone). The first task decides
        for all."""
        import submitit

        environment = submitit.JobEnvironment()
        if environment.global_rank == 0:
            environment._requeue(0)
        raise SystemExit(REQUEUE)


def _ignore_warning() -> None:
    """Make the training ignore the signal that submitit waits for. SLURM sends it to all processes of a step, and it
    would kill them before they have saved."""
    import submitit

    warning = submitit.JobEnvironment._usr_sig()
    if warning != signal.SIGUSR1:  # which the training obeys
        signal.signal(warning, signal.SIG_IGN)


def submit(
    argv: Sequence[str], folder: Path, *, cluster: str, nodes: int, minutes: int, options: Mapping[str, Any]
) -> str:
    """Queue ``etude WORDS`` and return the job's number; ``cluster`` is ``slurm``, or ``local`` to try it here."""
    try:
        import submitit
    except ImportError as error:
        raise UserError("etude submit --slurm needs submitit: pip install 'etude[slurm]'") from error
    try:
        limits = {f"{cluster}_max_num_timeout": _TIME_LIMITS}
        executor = submitit.AutoExecutor(folder=str(folder / "jobs"), cluster=cluster, **limits)
        executor.update_parameters(name="etude", nodes=nodes, tasks_per_node=1, timeout_min=minutes, **options)
    except (RuntimeError, ValueError, NameError, TypeError, AssertionError) as error:
        raise UserError(f"submitit refuses this job: {error}") from error
    return str(executor.submit(Training(argv, nodes)).job_id)
