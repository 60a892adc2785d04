"""Files through which the processes of one machine report to their launcher: progress, and how each ended.

.. code-block:: text

    beat-1.json    rank 1: pid, steps, seconds without progress, what it is doing; written a few times a second at most
    note-1.json    rank 1 has ended: exit code, step, its message
    folder         the run's folder, so that a restart resumes there

The launcher makes the folder and passes its path in the environment. Without Étude's launcher (under torchrun or srun),
each rank prints its own errors, and the heartbeats are in a temporary folder of the machine, so that a rank can name
another one that it has lost there, and what that did last. Imports no torch.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

from etude.config.files import replace_text
from etude.dist.jobs import collectives, slots
from etude.dist.world import World, stat_of
from etude.errors import printable
from etude.fast_dataclass import field, record, replace

FOLDER, LAUNCHER, ATTEMPT, PATIENCE = "ETUDE_REPORTS", "ETUDE_LAUNCHER", "ETUDE_ATTEMPT", "ETUDE_HANG_TIMEOUT"
#: What a rank does that has not begun to train.
STARTING = "starting"
_GONE = "it is gone"
#: Seconds that py-spy may take to look at a process, and how many frames are shown.
_LOOK, _FRAMES = 10, 24
#: Steps that this process is known to have done.
steps: Callable[[], int] = lambda: 0  # noqa: E731
_count = itertools.count()
#: Where ranks without a launcher leave their beats.
_shared: Path | None = None


@record
class Note:
    """How a rank ended."""

    rank: int
    code: int
    step: int
    when: float
    message: str = ""
    host: str = ""
    #: Its last collectives, if it did not end well.
    calls: str = ""


@record
class Beat:
    """The progress of a rank. ``still`` is the time without progress, ``waiting`` is whether it only waits for other
    ranks.

    ``when`` is of the monotonic clock, which all processes of a machine share: a clock that is set, or a laptop that
    sleeps, makes no rank look frozen.
    """

    rank: int
    pid: int
    when: float
    step: int = 0
    still: float = 0.0
    doing: str = STARTING
    waiting: bool = False
    stack: str = ""
    #: Its last collectives, if it makes no progress: see :mod:`etude.dist.jobs.collectives`.
    calls: str = ""
    host: str = field(default_factory=socket.gethostname)


def folder() -> Path | None:
    """Return where to leave reports; None without a launcher."""
    path = os.environ.get(FOLDER)
    return Path(path) if path else None


def attempt() -> int:
    """Return how often the launcher has started this job again."""
    return int(os.environ.get(ATTEMPT, "0"))


def timeout() -> timedelta:
    """Return the timeout of a collective. It is longer than a rank may stand still, so that the launcher ends a
    hanging rank before the others time out."""
    return timedelta(seconds=1.5 * float(os.environ.get(PATIENCE, "300")) + 5.0)


def leave_note(code: int, message: str = "") -> None:
    """Report to the launcher how this process ends; the first note counts."""
    place, world = folder(), World.from_environment()
    if place is None or (place / f"note-{world.rank}.json").exists():
        return
    note = Note(world.rank, code, steps(), time.time(), message, socket.gethostname())
    note = note if not code else replace(note, calls=collectives.of_this_rank())
    with suppress(OSError):
        replace_text(place / f"note-{world.rank}.json", json.dumps(asdict(note)))


def beat(**facts: Any) -> None:
    """Report the progress to the launcher or, without one, to the other ranks."""
    place, world = folder() or _shared, World.from_environment()
    if place is not None:
        made = asdict(Beat(world.rank, os.getpid(), time.monotonic(), **facts))
        with suppress(OSError):
            slots.write(place / f"beat-{world.rank}.json", made, next(_count))


def share_beats(path: Path) -> None:
    """Keep heartbeats of the run in ``path`` for the other ranks of this machine, if there is no launcher to read
    them."""
    global _shared
    if folder() is not None:
        return
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    place = Path(tempfile.gettempdir()) / f"etude-{os.getuid()}-{name}"
    with suppress(OSError):
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()  # anybody could have made it
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            _shared = place


def end_beats() -> None:
    """Remove this rank's beat, and the folder with the last one."""
    if _shared is not None:
        with suppress(OSError):
            (_shared / f"beat-{World.from_environment().rank}.json").unlink(missing_ok=True)
            _shared.rmdir()


def remember_folder(path: Path) -> None:
    """Record the run's folder, for a restart."""
    place = folder()
    if place is not None:
        (place / "folder").write_text(str(path.absolute()), encoding="utf-8")


def folder_before() -> Path | None:
    """Return the run's folder of the previous attempt; None in the first."""
    place = folder()
    if place is None or not attempt() or not (place / "folder").exists():
        return None
    return Path((place / "folder").read_text(encoding="utf-8"))


def read_notes(place: Path) -> list[Note]:
    """Return what ranks have left, the first that ended first."""
    return sorted((Note(**found) for found in _read(place, "note-*.json")), key=lambda note: note.when)


def read_beats(place: Path) -> dict[int, Beat]:
    found = {}
    for path in place.glob("beat-*.json"):
        with suppress(OSError, TypeError):
            facts = slots.read(path)
            if facts is not None:
                found[int(facts["rank"])] = Beat(**facts)
    return found


def idle_seconds(beat: Beat) -> float:
    """Return for how many seconds nothing has moved in a rank."""
    return beat.still + silence(beat) if beat.doing != STARTING else 0.0


def silence(beat: Beat) -> float:
    """Return how long a rank has not been heard of."""
    return max(0.0, time.monotonic() - beat.when)


def judge(beats: Iterable[Beat], patience: float) -> tuple[list[Beat], str]:
    """Return the ranks that keep the others from going on, and what their collectives say of it."""
    given = list(beats)
    hung = [beat for beat in given if idle_seconds(beat) >= patience]
    if not hung or any(silence(beat) >= patience for beat in hung):
        return [beat for beat in hung if silence(beat) >= patience], ""
    # Who waits has stood for a little shorter than the one that it waits for, and the other way round.
    still = {beat.rank: beat for beat in given if idle_seconds(beat) >= patience / 2}
    verdict = collectives.judge({rank: beat.calls for rank, beat in still.items() if beat.calls})
    if verdict is not None:
        return [still[rank] for rank in verdict.ranks], verdict.why
    return [beat for beat in hung if not beat.waiting], ""


def describe_hang(beats: Iterable[Beat], patience: float, why: str = "") -> str:
    """Name the ranks that make no progress, where, and since when."""
    lines = [why] if why else []
    for beat in beats:
        frozen = silence(beat) >= patience / 2
        doing = f"is frozen ({_state(beat.pid)})" if frozen else beat.doing
        who = f"rank {beat.rank} on {beat.host}"
        lines.append(f"{who} has not moved for {idle_seconds(beat):.0f} s after step {beat.step}: it {doing}")
        stack = _native_stack(beat.pid) or ("" if frozen else beat.stack)
        lines += [f"    {printable(line)}" for line in stack.splitlines()]
    return "\n".join(lines)


def _native_stack(pid: int) -> str:
    """Return the stack of the main thread of a process with its functions of C++, if py-spy is installed and allowed
    to look."""
    tool = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if tool is None or not Path(f"/proc/{pid}").exists():
        return ""
    words = [tool, "dump", "--native", "--nonblocking", "--pid", str(pid)]
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(words, capture_output=True, text=True, timeout=_LOOK, check=True).stdout
        threads = [part for part in said.split("\nThread ") if '"MainThread"' in part.partition("\n")[0]]
        lines = threads[0].splitlines()[1:] if threads else []
        return "\n".join(line.rstrip() for line in lines[:_FRAMES])
    return ""


def suspects() -> str:
    """Name the ranks of this machine that are gone or make no progress, without a launcher; empty if unknown."""
    if _shared is None:
        return ""
    patience, world, host = float(os.environ.get(PATIENCE, "300")), World.from_environment(), socket.gethostname()
    known = [beat for beat in read_beats(_shared).values() if beat.host == host]
    beats = [beat for beat in known if beat.rank != world.rank and beat.rank < world.size]
    gone = [beat for beat in beats if _state(beat.pid) == _GONE]
    if gone:
        return "\n".join(f"rank {beat.rank} on {beat.host} is gone, after step {beat.step}" for beat in gone)
    guilty, why = judge([beat for beat in known if beat.rank < world.size], patience)
    return describe_hang([beat for beat in guilty if beat.rank != world.rank], patience, why)


def _state(pid: int) -> str:
    """Return the state of a process as the kernel sees it: stopped, or asleep with all of its threads."""
    found = stat_of(pid)
    if not found:
        return _GONE if Path("/proc/self").exists() else "it does not answer"
    words = {
        "T": "stopped by a signal", "t": "held by a debugger", "D": "waiting for a device", "Z": _GONE,
        "R": "it computes in code that lets no other thread of Python run",
    }  # fmt: skip
    return words.get(found[0], "no thread runs")


def clear(place: Path) -> None:
    """Forget an attempt; the run's folder stays known."""
    for path in [path for kind in ("note-*.json", "beat-*.json", "crash-*.txt") for path in place.glob(kind)]:
        path.unlink(missing_ok=True)


def tell(error: BaseException, report: Callable[[], int]) -> int:
    """Report ``error`` by ``report``, which prints and returns the exit code. One of several processes says who it is,
    or leaves its message to the launcher, which prints those of the first."""
    world = World.from_environment()
    if not world.is_many:
        return report()
    from etude.dist import group

    lost = group.lost_peer(error, step=steps())
    if lost is not None:
        leave_note(lost.exit_code, str(lost))
        if folder() is None:
            who = f"etude: rank {world.rank} on {socket.gethostname()}"
            print("\n".join(filter(None, (f"{who}: error: {lost}", suspects()))), file=sys.stderr)
        return lost.exit_code
    code = getattr(error, "exit_code", None)
    buffer = io.StringIO()
    if not getattr(error, "is_told", False) or code is None:
        with redirect_stderr(buffer):
            code = report()
    message = buffer.getvalue()
    if folder() is not None:
        leave_note(code, message)
    elif message:
        after = f" after step {steps()}" if steps() else ""
        print(f"etude: rank {world.rank} on {socket.gethostname()}{after}:\n{message}", end="", file=sys.stderr)
    return code


def _read(place: Path, pattern: str) -> list[dict[str, Any]]:
    found = []
    for path in place.glob(pattern):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text(encoding="utf-8")))
    return found
