"""Counts failed attempts of a run, so that one that always fails at the same step is not restarted for ever.

``attempts.json`` in the run's folder has one entry per attempt that failed since the newest checkpoint, and the number
of steps that the current attempt has done, updated in place after each step (one small ``pwrite``). After :data:`LIMIT`
failures at one step, ``--resume`` is refused. The file is removed when an attempt ends well, and entries are dropped
when there is a newer checkpoint to resume from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etude.checkpoint.storage import disk
from etude.config.shapes import text, whole
from etude.errors import EtudeError, printable

NAME = "attempts.json"
LIMIT = 3
_WIDTH = 20
_KILLED = "it ended without a message (killed, out of memory, a crash of a library)"


class Attempts:
    """The attempts at a run in ``folder``; ``say`` gets a message if they cannot be recorded."""

    def __init__(self, folder: str | os.PathLike[str], *, say: Callable[[str], Any]) -> None:
        self.path, self.say = Path(folder) / NAME, say
        self._lives: list[dict[str, Any]] = []
        self._fd = -1
        self._at = 0

    def begin(self, step: int, *, again: bool = False) -> None:
        """Record an attempt that starts after ``step`` steps. Refuse it if :data:`LIMIT` attempts in a row failed at
        one step.

        ``again`` forgets what was.
        """
        # A process that was killed inside `write_atomically` leaves its temporary file.
        for left in self.path.parent.glob(f".{NAME}.tmp-*"):
            left.unlink(missing_ok=True)
        self._lives = [] if again else [life for life in self._read(step) if life["base"] == step][-LIMIT:]
        self._require_hope()
        self._write(noting=True, at=step)

    def reached(self) -> int:
        """Return how many steps the previous attempt did; 0 if that is unknown."""
        try:
            return whole(json.loads(self.path.read_bytes())["done"])
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return 0

    def note(self, step: int) -> None:
        """Record that ``step`` steps are done, unless the file cannot be written."""
        try:
            # Of fixed width, so that no digit of the last number stays. A descriptor of -1 is an OSError.
            os.pwrite(self._fd, b"%*d" % (_WIDTH, step), self._at)
        except OSError:
            self._stop_noting()

    def failed(self, step: int, error: BaseException) -> None:
        """Record that this attempt failed with ``error`` in the step after ``step`` finished ones."""
        self._stop_noting()
        self._write(at=step, how=f"{type(error).__name__}: {printable(str(error))[:300]}")

    def clear(self) -> None:
        """Forget all attempts: this one ended normally."""
        self._stop_noting()
        self.path.unlink(missing_ok=True)

    def _require_hope(self) -> None:
        steps = {life["step"] for life in self._lives}
        if len(self._lives) < LIMIT or len(steps) != 1:
            return
        step, last, log = steps.pop(), self._lives[-1], self.path.with_name("log.txt")
        raise EtudeError(
            f"{LIMIT} failures at step {step}, giving up; see {printable(str(log if log.exists() else log.parent))}\n"
            f"  the last one: {printable(str(last['how']))}\n"
            f"  every start from step {last['base']} ends there. After fixing the cause, pass --retry to continue; "
            "--resume PATH resumes from an older checkpoint"
        )

    def _read(self, step: int) -> list[dict[str, Any]]:
        """Return the attempts so far, including one that was running when the file was written, as no checkpoint is
        newer."""
        try:
            content = json.loads(self.path.read_bytes())
            lives = [_life(life["base"], life["step"], life["how"]) for life in content["lives"]]
            # It ended inside the step after those that were done.
            return [*lives, _life(step, whole(content["done"]) + 1, content["how"])]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return []

    def _write(self, *, at: int, noting: bool = False, how: str = _KILLED) -> None:
        head = f'{{"lives": {json.dumps(self._lives)}, "how": {json.dumps(how)}, "done": '
        text = f"{head}{at:{_WIDTH}}}}\n".encode()
        try:
            disk.write_atomically(str(self.path), lambda file: file.write(text))
            if noting:
                self._at = len(head.encode())
                self._fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            self.say(f"{NAME} cannot be written ({printable(str(error))}): a crash loop would not be noticed")

    def _stop_noting(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _life(base: Any, step: Any, how: Any) -> dict[str, Any]:
    return {"base": whole(base), "step": whole(step), "how": text(how)}
