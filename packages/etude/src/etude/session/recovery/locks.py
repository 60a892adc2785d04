"""Locks a run's folder and the place of its checkpoints, and notices when the folder is gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etude.checkpoint.storage.lock import Lock
from etude.checkpoint.storage.owner import Claim, hold
from etude.checkpoint.storage.remote import RemoteError
from etude.config.tree import Tree
from etude.core.run import Run
from etude.errors import ConfigError, SaveError, printable, with_place
from etude.hooks.signals import Stops
from etude.plan import NOWHERE
from etude.session.recovery.presence import Presence
from etude.session.watch.watchdog import Watchdog


class Locks:
    """The lock of the run's folder, and of the place of its checkpoints where that is elsewhere.

    Taken before anything is written, released last.
    """

    def __init__(self, run: Run, *, say: Callable[[str], Any], tree: Tree | None = None) -> None:
        self.run, self.say, self.tree = run, say, tree
        self._lock: Lock | None = None
        self._place_lock: Lock | Claim | None = None
        self.presence: Presence | None = None

    def take(self, stops: Stops, *, renew: Callable[[], None] | None = None) -> None:
        """Refuse a folder that is in use. ``renew`` records the run again in a folder that was deleted."""
        if self.run.folder is not None and self.run.world.is_main:
            self._lock = Lock(self.run.folder)
            renew = renew or (lambda: None)
            self.presence = Presence(self.run.folder, self._lock, stops=stops, say=self.say, renew=renew)

    @property
    def claim(self) -> Claim | None:
        """The ownership of a place in an object store."""
        return self._place_lock if isinstance(self._place_lock, Claim) else None

    def take_place(self, place: str, folder: Path) -> None:
        """Lock the place of the checkpoints, unless the lock of the run's folder covers it: two runs must not share
        it."""
        if "://" in place:
            try:
                self._place_lock = hold(place, say=self.say)
            except RemoteError as error:
                at = self.tree.place("checkpoint", "folder") if self.tree is not None else NOWHERE
                raise with_place(ConfigError(f"checkpoint.folder: {error}"), at) from error
            return
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            if not os.path.samefile(place, folder):
                self._place_lock = Lock(place)
        except OSError as error:
            raise ConfigError(f"checkpoint.folder: {printable(place)} cannot be written: {error.strerror}") from error

    @property
    def refused(self) -> bool:
        """Return whether the folder is another process's."""
        return self._lock is None

    def watch(self, watchdog: Watchdog, *, lasting: bool) -> None:
        """Look for the run's folder at every record from now on; the run is recorded in it.

        The folder of a run that is not ``lasting`` is its own to remove.
        """
        if not lasting:
            self.presence = None
        if self.presence is not None:
            self.presence.begin()
            self.run.events.writers.append(self.presence)
            watchdog.look = self.presence.look

    def lost_folder(self, error: Exception) -> SaveError | None:
        """Return what a missing file is really about: the whole folder is gone."""
        presence, first = self.presence, error
        while isinstance(first.__cause__, Exception):  # a saver of another system gives up after several saves
            first = first.__cause__
        if presence is None or not isinstance(first, FileNotFoundError):
            return None
        presence.look()
        return SaveError(presence.lost) if presence.lost else None

    def require_presence(self) -> None:
        """Raise an error if the run's folder was lost and not made anew."""
        presence = self.presence
        if presence is None:
            return
        if self.run.store is not None:
            self.run.store.store.wait()
        presence.look()
        # A run that was at its end could not be stopped for it, and other ranks know of a signal only.
        if presence.lost and (presence.is_gone() or self.run.exit_code != SaveError.exit_code or self.run.peers):
            raise SaveError(presence.lost)

    def release(self) -> None:
        for lock in (self._place_lock, self._lock):
            if lock is not None:
                lock.release()
