"""Marks a place on an object store as one run's: ``.lock`` says who writes there, and is renewed while that run lives.

.. code-block:: text

    claim      no mark                            it is created, which one of several starts can do
               of a process that is gone          taken over: this machine has no such process any more
               of a process that may be alive     watched: refused when it is renewed, taken over when it stays the same
    renewed    every BEAT seconds, if it is still this run's
    compared   before and after the files of every save
    released   at the end; a crash leaves it

A mark is replaced only in the version that was read, where the store can compare (S3 can), so that of two runs that
take one over at the same time one is refused.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from etude.checkpoint.storage.lock import NAME, FolderInUse, Lock, describe
from etude.checkpoint.storage.places import locate
from etude.checkpoint.storage.remote import RemoteDisk
from etude.errors import SaveError, printable

#: Seconds between two renewals, and for how long a mark has to stay the same before its owner counts as dead.
BEAT, SILENCE = 10.0, 40.0
_LOOK = 1.0
#: Claims of this process that are over; an outage may have kept their marks from being removed.
_over: set[str] = set()


class OwnerLost(SaveError):
    """The place belongs to another run now."""


class Claim:
    """Holds ``folder`` on an object store from construction to :meth:`release`.

    ``say`` gets a line when that takes long, or when the mark of a dead process is taken over.
    """

    def __init__(self, disk: RemoteDisk, folder: str, *, say: Callable[[str], Any]) -> None:
        self._disk, self.path, self._say = disk, disk.join(folder, NAME), say
        self.place = printable(disk.url(folder))
        self._facts = _own_facts()
        self._number = 0
        self._mine = b""
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._take()
        self._pulse = threading.Thread(target=self._renew, name="etude-owner", daemon=True)
        self._pulse.start()

    def _take(self) -> None:
        while not self._disk.write_new(self.path, self._next()):
            found = self._read()
            if found is None:  # released since
                continue
            text, mark = found
            if text == self._mine:
                return
            if not _is_dead(text):
                self._watch(text)
            if self._disk.replace(self.path, self._next(), mark):
                self._say(f"{self.place} was in use by {describe(text)}, which is gone; taken over")
                return
            raise self._in_use(self._read())

    def _watch(self, text: bytes) -> None:
        """Return when the mark ``text`` is not renewed for long; refuse the place if it is."""
        if _is_alive(text):
            raise self._in_use((text, ""))
        self._say(f"{self.place} is marked as in use by {describe(text)}; waiting {SILENCE:.0f} s for a sign of life")
        ends = time.monotonic() + SILENCE
        while time.monotonic() < ends:
            time.sleep(min(_LOOK, SILENCE / 4))
            found = self._read()
            if found is None:
                return
            if found[0] != text:
                raise self._in_use(found)

    def _in_use(self, found: tuple[bytes, str] | None) -> FolderInUse:
        return FolderInUse(f"run directory {self.place} in use by {describe(found[0] if found else b'')}")

    def check(self) -> bool:
        """Return whether the mark is there; put it back if somebody has deleted it. Raise :class:`OwnerLost` if it is
        another run's."""
        with self._guard:
            found = self._read()
            if found is None:
                if self._disk.write_new(self.path, self._next()):
                    return False
                found = self._read()
            if found is None or not self._is_own(found[0]):
                owner = describe(found[0] if found else b"")
                raise OwnerLost(f"{self.place} belongs to {owner} now; this run stops, so that their files do not mix")
            return True

    def release(self) -> None:
        """Release the place, if it is still this run's."""
        if not self._ended.is_set():
            self._ended.set()
            _over.add(self._facts["run"])
            with suppress(OSError), self._guard:  # what stays is taken over as that of a dead process
                found = self._read()
                if found is not None and self._is_own(found[0]):
                    self._disk.remove(self.path)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

    def _renew(self) -> None:
        while not self._ended.wait(BEAT):
            with suppress(OSError), self._guard:  # an outage: the saves report it
                found = self._read()
                if found is not None and self._is_own(found[0]) and not self._ended.is_set():
                    self._disk.replace(self.path, self._next(), found[1])

    def _read(self) -> tuple[bytes, str] | None:
        try:
            return self._disk.read_small(self.path)
        except FileNotFoundError:
            return None

    def _next(self) -> bytes:
        """Return the mark in a version that was never there before."""
        self._number += 1
        self._mine = json.dumps({**self._facts, "beat": self._number}).encode()
        return self._mine

    def _is_own(self, text: bytes) -> bool:
        return bool(_facts_in(text).get("run") == self._facts["run"])


def hold(folder: str, *, say: Callable[[str], Any]) -> Lock | Claim:
    """Return the lock of a folder, on a disk or on an object store."""
    disk, where = locate(folder)
    return Claim(disk, where, say=say) if isinstance(disk, RemoteDisk) else Lock(where)


def _own_facts() -> dict[str, Any]:
    return {
        "run": uuid.UUID(bytes=os.urandom(16)).hex,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "machine": _machine(),
        "started": _start_of(os.getpid()),
    }


def _facts_in(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _is_alive(text: bytes) -> bool:
    """Return whether the process is on this machine, and there."""
    facts = _facts_in(text)
    return _is_here(facts) and not _is_dead(text)


def _is_dead(text: bytes) -> bool:
    """Return whether the process was on this machine, and is not there any more."""
    facts = _facts_in(text)
    pid = facts.get("pid")
    if isinstance(facts.get("run"), str) and facts["run"] in _over:
        return True
    return _is_here(facts) and isinstance(pid, int) and _start_of(pid) != facts.get("started")


def _is_here(facts: dict[str, Any]) -> bool:
    machine = _machine()
    return bool(machine) and facts.get("machine") == machine and facts.get("host") == socket.gethostname()


def _machine() -> str:
    """Return what a process id is meaningful in: this start of this machine, and this container."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return when a process was started, in the kernel's own count; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in (b"Z", b"X") else words[19].decode()
