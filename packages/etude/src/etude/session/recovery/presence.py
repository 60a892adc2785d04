"""Notices that a run's folder was deleted, emptied or moved while the run trains."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from etude.checkpoint.storage.lock import FolderInUse, Lock
from etude.errors import ConfigError, SaveError, printable
from etude.events.record import Record
from etude.hooks.signals import Stops

_PLAN = "plan.yaml"


class Presence:
    """Looks for the folder at every record and before every save, as a writer of the run and in its saver.

    A folder that is gone is made anew for one more checkpoint, and the run stops: records and older checkpoints cannot
    be brought back, and whoever deleted the folder may have meant the run.
    """

    def __init__(
        self, folder: Path, lock: Lock, *, stops: Stops, say: Callable[[str], Any], renew: Callable[[], None]
    ) -> None:
        self.folder, self.lock, self.stops, self.say, self.renew = folder, lock, stops, say, renew
        self._plan: tuple[int, int] | None = None
        #: What happened to the folder; empty while nothing did.
        self.lost = ""

    def begin(self) -> None:
        """Remember the folder, now that the run is recorded in it."""
        self._plan = _identity(self.folder / _PLAN)

    def is_gone(self) -> bool:
        """Return whether the folder is not the one that this run has begun in, or is empty."""
        return not self.lock.is_in_place() or (self._plan is not None and _identity(self.folder / _PLAN) is None)

    def look(self) -> None:
        """Have the run stop after this step if its folder is gone."""
        if not self.lock.is_in_place() and self._plan is not None and _identity(self.folder / _PLAN) == self._plan:
            with suppress(OSError, FolderInUse):  # the reason is reported below
                self.lock.retake()  # someone has deleted the lock alone
        if not self.lost and self.is_gone():
            self.lost = f"{printable(str(self.folder))} was deleted, emptied or moved while the run trained"
            self.say(f"{self.lost}; the run stops after this step")
            self.stops.stop_for(self.lost)

    def require(self) -> None:
        """Make the folder anew before a save if it is gone; raise :class:`SaveError` if another run has taken it."""
        self.look()
        if not self.lost or not self.is_gone():
            return
        if not self.lock.is_in_place() and _identity(self.folder / _PLAN) not in (None, self._plan):
            raise SaveError(f"{self.lost}, and there is another run in its place now")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.lock.retake()
            if _identity(self.folder / _PLAN) is None:
                self.renew()
        except (OSError, FolderInUse, ConfigError) as error:
            raise SaveError(f"{self.lost}, and it cannot be made anew: {printable(str(error))}") from error
        self.begin()
        self.say("its records and older checkpoints are gone; it is made anew for the checkpoint of this step")

    def write(self, record: Record) -> None:
        """Take a record as a moment to look."""
        self.look()

    def close(self) -> None: ...


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which file is at ``path``; None if there is none."""
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # a disk that fails is for the saves to report
        return (0, 0)
    return info.st_dev, info.st_ino
