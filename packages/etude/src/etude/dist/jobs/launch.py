"""``etude train CONFIG --nproc 2``: starts the processes, watches them, and reports their outcome once.

.. code-block:: text

    launcher    meeting of the ranks · monitor (a thread: heartbeats) · signals, passed on to every rank once
    worker      a fork of a server that has torch loaded already; it ends when the launcher is gone
    an attempt  all ranks finish, or one fails and the others are ended with it
    again       when a rank was killed, hung or lost: the next attempt resumes from the newest checkpoint
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from etude.dist.jobs import collectives, heartbeat, ranks, reports, secret, tether
from etude.dist.jobs.meeting import LOOPBACK, Machines, NoMeeting, OneMachine
from etude.dist.jobs.ranks import ORDERLY
from etude.dist.jobs.reports import Beat, Note
from etude.dist.world import interface_of, towards
from etude.errors import PeerError, printable
from etude.fast_dataclass import record, replace

_PASSED_ON = ("SIGTERM", "SIGINT", "SIGUSR1")


@record(kw_only=True)
class Launch:
    """The number of processes, their rendezvous, and how often a lost job is restarted."""

    nproc: int
    nodes: int = 1
    endpoint: str = ""
    job: str = "etude"
    max_restarts: int = 3
    hang_timeout: float = 300.0
    grace: float = 30.0


@record
class End:
    """The outcome of an attempt: its exit code, its message, and whether a restart may help."""

    code: int
    message: str = ""
    lost: bool = False


def launch(argv: Sequence[str], options: Launch, main: Callable[[list[str]], int]) -> int:
    """Call ``main(argv)`` in several processes; return the exit code of the command."""
    several = options.nodes > 1
    # Other machines know no secret that is drawn here.
    secrets = {} if several else {secret.NAME: secret.draw()}
    with tempfile.TemporaryDirectory(prefix="etude-ranks-") as made:
        place = Path(made)
        meeting: OneMachine | Machines = OneMachine(place, _port(options))
        if several:
            meeting = Machines(options.endpoint, options.nodes, options.job)
        for attempt in range(options.max_restarts + 1):
            ranks_of_job = _Attempt(main, list(argv), options, place, attempt, meeting, secrets)
            end = ranks_of_job.run()
            # Who asked the job to stop does not want it back because a rank did not obey in time.
            if not end.lost or ranks_of_job.signalled or attempt == options.max_restarts:
                break
            print(
                f"etude: {end.message}\netude: starting again from the newest checkpoint "
                f"(restart {attempt + 1} of {options.max_restarts})",
                file=sys.stderr, flush=True,
            )  # fmt: skip
            reports.clear(place)
    if end.message:
        text = end.message if end.message.endswith("\n") else f"etude: error: {end.message}\n"
        print(text, end="", file=sys.stderr, flush=True)
    return end.code


def _port(options: Launch) -> int:
    """Return the port at which the ranks of one machine meet; 0: any that is free."""
    return int(options.endpoint.rpartition(":")[2]) if options.endpoint else 0


class _Attempt:
    """One start of all ranks of this machine."""

    def __init__(
        self,
        main: Callable[[list[str]], int],
        argv: list[str],
        options: Launch,
        place: Path,
        number: int,
        meeting: OneMachine | Machines,
        secrets: dict[str, str],
    ) -> None:
        self.main, self.argv, self.options, self.place, self.number = main, argv, options, place, number
        self.meeting, self.secrets = meeting, secrets
        self._over = threading.Event()
        self._hung = ""
        self.signalled: str | None = None

    def run(self) -> End:
        before = {name: signal.signal(getattr(signal, name), self._pass_on) for name in _PASSED_ON}
        monitor = threading.Thread(target=self._monitor, name="etude-monitor", daemon=True)
        monitor.start()
        ended_well = False
        try:
            environments = self._environments()
            code = ranks.run(worker, (self.main, self.argv, self.options.nproc), environments, self.options.grace + 5)
            ended_well = True
            return End(code)
        except ranks.Failed as failed:
            if not reports.read_notes(self.place) and self.options.nodes > 1:
                time.sleep(1.0)  # each failed rank writes a note before it ends; that of another node may take a moment
            return self._end(failed.rank, failed.code)
        except _Early as early:
            return End(early.code, f"stopped by {self.signalled} outside of training: there is nothing to save")
        except (NoMeeting, RuntimeError, OSError) as error:
            return End(2, _rendezvous_failed(error, self.options))
        finally:
            self._over.set()
            monitor.join(5)
            self.meeting.end(self.number, wait=ended_well)
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _environments(self) -> dict[int, dict[str, str]]:
        """Meet the launchers of the other machines; return the environment of each rank of this one."""
        count = self.options.nproc
        place = self.meeting.begin(self.number, count)
        common = self._network() | self.secrets | {
            reports.FOLDER: str(self.place), reports.LAUNCHER: str(os.getpid()),
            reports.ATTEMPT: str(self.number), reports.PATIENCE: str(self.options.hang_timeout),
        }  # fmt: skip
        return {place.first + local: common | place.environment(local, count) for local in range(count)}

    def _network(self) -> dict[str, str]:
        """Let gloo and NCCL use the network on which the machines meet, unless the environment chooses one. On one
        machine that is loopback, whatever it chooses."""
        several = self.options.nodes > 1
        name = interface_of(towards(self.options.endpoint) if several else LOOPBACK)
        wanted = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME") if name else ()
        return {key: name for key in wanted if not several or key not in os.environ}

    # -- signals ---------------------------------------------------------------------------------------------------

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Forward a signal to every rank: ranks are not in the terminal's process group."""
        pids = [beat.pid for beat in reports.read_beats(self.place).values()]
        self.signalled = signal.Signals(number).name
        if not pids:
            raise _Early({"SIGTERM": 143, "SIGINT": 130, "SIGUSR1": 75}[self.signalled])
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    # -- watching --------------------------------------------------------------------------------------------------

    def _monitor(self) -> None:
        """End the ranks of this machine if one of them makes no progress for too long."""
        patience, seen = self.options.hang_timeout, time.monotonic()
        judge_from = seen
        while not self._over.wait(min(1.0, patience / 8)):
            before, seen = seen, time.monotonic()
            # The whole job was stopped (Ctrl-Z, a debugger): ranks get their time again.
            if seen - before > patience / 2:
                judge_from = seen + patience
            if seen < judge_from:
                continue
            beats = reports.read_beats(self.place)
            alive = [beat for beat in beats.values() if _is_alive(beat.pid)]
            hung = [beat for beat in alive if reports.idle_seconds(beat) >= patience]
            guilty, why = reports.judge(alive, patience)
            # Ranks that all seem to wait for each other are to blame together in the end.
            overdue = any(reports.idle_seconds(beat) >= 2 * patience for beat in hung)
            if guilty or overdue:
                self._hung = reports.describe_hang(guilty or hung, patience, why)
                for beat in [*guilty, *beats.values()]:
                    with suppress(ProcessLookupError):
                        os.kill(beat.pid, signal.SIGKILL)  # one that is stopped obeys nothing else
                if self.options.nodes > 1 and not self._over.wait(self.options.grace):
                    self._leave_alone()
                return

    def _leave_alone(self) -> None:
        """Leave without the others if the network is gone: there is nobody to wait for."""
        hint = f"the other machines do not answer at {self.options.endpoint}; resume when they do"
        print(f"etude: error: {self._hung}\netude: {hint}", file=sys.stderr, flush=True)
        shutil.rmtree(self.place, ignore_errors=True)
        os._exit(PeerError.exit_code)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, rank: int, code: int) -> End:
        """Return why the ranks ended: the first of these reasons that there is. ``rank`` ended first, with ``code``."""
        if self._hung:
            return End(PeerError.exit_code, self._hung, lost=True)
        notes, beats = reports.read_notes(self.place), reports.read_beats(self.place)
        torn_down = self.signalled is None and _is_torn_down(rank, code, notes)
        found = _spoken(notes, torn_down=torn_down) or _never_began(code, beats) or self._gone(rank, code, notes, beats)
        if found is not None:
            return found
        if notes:
            return End(PeerError.exit_code, _last_line(notes[0]), lost=True)
        return End(code or 1, f"rank {rank} on {socket.gethostname()} ended with code {code} and no message")

    def _gone(self, rank: int, code: int, notes: Sequence[Note], beats: Mapping[int, Beat]) -> End | None:
        """Return that a rank is gone; of one that has crashed with its stack, and the collectives of the others."""
        end = _gone(rank, code, notes, beats)
        stack = heartbeat.stack_of_crash(self.place / f"crash-{rank}.txt") if end is not None else ""
        if end is None or not stack:
            return end
        others = [line for note in notes for line in collectives.last(note.rank, note.calls)]
        lines = [f"{end.message}, in", *(f"    {line}" for line in stack.splitlines()), *others]
        return replace(end, message="\n".join(map(printable, lines)))


def _is_torn_down(rank: int, code: int, notes: Sequence[Note]) -> bool:
    """Return whether the launcher has ended the ranks with SIGTERM because one of them was gone."""
    killed = code == -signal.SIGKILL and all(note.rank != rank for note in notes)
    return killed or bool(notes and notes[0].code == PeerError.exit_code)


def _spoken(notes: Sequence[Note], *, torn_down: bool) -> End | None:
    """Return what the rank that failed says. Ranks that only followed it have nothing to say."""
    followed = (PeerError.exit_code, 143) if torn_down else (PeerError.exit_code,)
    with_message_first = sorted(notes, key=lambda note: not note.message)
    raised = next((note for note in with_message_first if note.code not in followed), None)
    if raised is None:
        return None
    if raised.code in ORDERLY:  # it came to the end; what happened while it was torn down does not matter
        return End(raised.code)
    return End(raised.code, _describe_error(raised))


def _never_began(code: int, beats: Mapping[int, Beat]) -> End | None:
    """Return that the others have waited in vain for a rank which never came to its first step."""
    late = [beat for beat in beats.values() if beat.doing == reports.STARTING and not beat.waiting]
    if code != PeerError.exit_code or not late:
        return None
    return End(PeerError.exit_code, _describe_late(late[0]), lost=True)


def _gone(rank: int, code: int, notes: Sequence[Note], beats: Mapping[int, Beat]) -> End | None:
    """Return that a rank was killed: by a signal, or it has left no note."""
    silent = [one for one in beats if one not in {note.rank for note in notes}]
    if code >= 0 and not silent:
        return None
    lost = rank if code < 0 else silent[0]
    how = f"killed by {_signal_name(-code)}" if code < 0 else "killed"
    step = max([note.step for note in notes] + [beats[lost].step if lost in beats else 0])
    # A rank reports its step twice a second, so one that is killed soon after it began has reported none.
    began = lost in beats and beats[lost].doing != reports.STARTING
    after = f"at step {step}" if step else "in its first steps" if began else "before the first step"
    return End(PeerError.exit_code, f"rank {lost} on {socket.gethostname()} lost {after}: {how}", lost=True)


class _Early(BaseException):
    """A signal that came before any rank started."""

    def __init__(self, code: int) -> None:
        self.code = code


def worker(main: Callable[[list[str]], int], argv: list[str], count: int, environment: dict[str, str]) -> None:
    """Run one rank. A normal end is an exit with its code; any other ends the process at once."""
    tether.die_with_parent()
    tether.follow_parent(PeerError.exit_code)
    os.environ.update(environment)
    with suppress(OSError):
        os.setsid()  # Ctrl-C goes to the launcher, which passes it on
    # How this process was made must not decide how a DataLoader makes its workers.
    multiprocessing.set_start_method(None, force=True)
    reports.beat()
    heartbeat.watch_start()
    if (place := reports.folder()) is not None:
        heartbeat.keep_crash(place / f"crash-{environment['RANK']}.txt")
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // count))
    try:
        code = main(argv)
    except SystemExit as early:  # a signal before training
        code = early.code if isinstance(early.code, int) else 1
    heartbeat.started.set()  # where it was last is what counts
    reports.leave_note(code)
    if code in ORDERLY:
        sys.exit(code)
    _let_others_speak()
    sys.stdout.flush()
    sys.stderr.flush()
    # Tearing down a group that has lost a rank may abort, and end with another code.
    os._exit(code)


def _let_others_speak(seconds: float = 3.0) -> None:
    """Wait for the rank that knows what is wrong: the first process that ends takes the others with it."""
    place, deadline = reports.folder(), time.monotonic() + seconds
    while place is not None and not any(note.message for note in reports.read_notes(place)):
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _describe_late(beat: Beat) -> str:
    stack = "".join(f"\n    {printable(line)}" for line in beat.stack.splitlines())
    who = f"rank {beat.rank} on {socket.gethostname()}"
    return f"{who} never came to the first step, and the others have waited for it: it is at{stack}"


def _describe_error(note: Note) -> str:
    after = f" after step {note.step}" if note.step else ""
    if not note.message:
        return f"rank {note.rank} on {note.host} called sys.exit({note.code}){after}"
    head = f"etude: rank {note.rank} on {note.host} failed{after}:\n"
    return head + (note.message if note.message.endswith("\n") else f"{note.message}\n")


def _last_line(note: Note) -> str:
    lines = note.message.strip().splitlines() or [f"rank {note.rank} lost the others"]
    return lines[-1].removeprefix("etude: ").removeprefix("error: ")


def _rendezvous_failed(error: BaseException, options: Launch) -> str:
    who = f"the {options.nodes} nodes" if options.nodes > 1 else "the processes"
    where = options.endpoint or "this machine"
    said = printable((str(error).splitlines() or [type(error).__name__])[0])[:200]
    if isinstance(error, NoMeeting):
        return f"{who} do not meet at {where}: {said}"
    return f"{who} do not meet at {where}: {type(error).__name__}: {said}; is the port free, and the same on all?"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
