"""Brings launchers and ranks together: the stores in which they find each other, and who has which rank.

.. code-block:: text

    one machine        the ranks meet in a file of the launcher's own folder; a store on the loopback address is there
                       for scripts that make their group themselves, as under torchrun
    several machines   the launchers meet at the endpoint: one of them listens there, on that address alone
                       each says how many ranks it starts; the host answers with the first rank of each,
                       and with the address and port of the store in which the ranks of this attempt meet

What the launchers say to each other is JSON with a seal (:mod:`etude.dist.jobs.secret`): what anybody else writes is
refused, and never more than text.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from etude.dist.jobs import secret
from etude.dist.world import is_here, towards
from etude.errors import EtudeError, printable
from etude.fast_dataclass import record
from etude.torch_private import stores

LOOPBACK = "127.0.0.1"
#: The path of the file in which the ranks of one machine meet.
MEETING = "ETUDE_MEETING"
#: Seconds: to find the host, for all launchers to come, and for all to end.
_FIND, _COME, _LEAVE = 60.0, 600.0, 300.0
_PAUSE = 0.05
#: Longest message of a launcher: more is not by one.
_LONGEST = 1 << 16


class NoMeeting(EtudeError):
    """The launchers did not come together."""


@record
class Place:
    """The ranks of this machine, and where all ranks of an attempt meet."""

    address: str
    port: int
    first: int
    size: int
    node: int = 0
    nodes: int = 1
    file: str = ""

    def environment(self, local: int, count: int) -> dict[str, str]:
        """Return what torchrun would set for one of this machine's ``count`` ranks."""
        return {
            "RANK": str(self.first + local), "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(local), "LOCAL_WORLD_SIZE": str(count),
            "GROUP_RANK": str(self.node), "GROUP_WORLD_SIZE": str(self.nodes),
            "MASTER_ADDR": self.address, "MASTER_PORT": str(self.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "etude",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            MEETING: self.file,
        }  # fmt: skip


def listen(address: str, port: int = 0) -> Any:
    """Return a store that listens on ``address`` alone: torch's own listens on every network of the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address, port))
        port = bound.getsockname()[1]
        return stores().TCPStore(
            address, port, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=_FIND),
            master_listen_fd=bound.detach(),
        )  # fmt: skip


class OneMachine:
    """The meeting of ranks that need no other machine."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self._folder, self._port = folder, port
        self._store: Any = None

    def begin(self, attempt: int, count: int) -> Place:
        # Each attempt has a store: ranks would read the addresses of dead ones.
        self._store = None
        self._store = listen(LOOPBACK, self._port)
        return Place(LOOPBACK, self._store.port, 0, count, file=str(self._folder / f"meeting-{attempt}"))

    def end(self, attempt: int, *, wait: bool) -> None:
        self._store = None


class Machines:
    """The meeting of the launchers of several machines."""

    def __init__(self, endpoint: str, nodes: int, job: str) -> None:
        self._endpoint, self._nodes, self._job = endpoint, nodes, job
        self._hosts = False
        self._meeting: Any = None
        self._store: Any = None

    def begin(self, attempt: int, count: int) -> Place:
        """Wait for all launchers; return the place of this one in the attempt."""
        if self._meeting is None:
            self._meeting = self._find()
        store = self._keys(attempt)
        number = store.add("arrived", 1)
        if number > self._nodes:
            raise NoMeeting(f"more than {self._nodes} launchers have come; another job needs another --rdzv-id")
        _write(store, f"node/{number}", {"address": towards(self._endpoint), "count": count})
        if self._hosts:
            self._answer(store, number)
        plan = self._read(store, "plan", "the launcher that listens there has not answered")
        try:
            firsts, nodes = plan["first"], plan["node"]
            return Place(
                str(plan["address"]), int(plan["port"]), int(firsts[str(number)]), int(plan["size"]),
                int(nodes[str(number)]), self._nodes,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise NoMeeting(f"the plan of the host is not one: {printable(str(error))[:80]}") from error

    def end(self, attempt: int, *, wait: bool) -> None:
        """Say that this launcher has ended an attempt. Its host may ``wait`` for the others, who use its store."""
        if self._meeting is None:
            return
        store = self._keys(attempt)
        try:
            ended, deadline = store.add("ended", 1), time.monotonic() + _LEAVE
            while wait and self._hosts and ended < self._nodes and time.monotonic() < deadline:
                time.sleep(_PAUSE)
                ended = store.add("ended", 0)
        except (RuntimeError, OSError):  # the host has left
            pass
        self._store = None

    def _find(self) -> Any:
        """Return the store at the endpoint; this launcher is its host if the address is of this machine and free."""
        host, _, port = self._endpoint.rpartition(":")
        if is_here(self._endpoint):
            try:
                found = listen(socket.gethostbyname(host), int(port))
                self._hosts = True
                return found
            except OSError as error:
                if error.errno != errno.EADDRINUSE:  # another launcher on this machine is the host already
                    raise
        deadline = time.monotonic() + _FIND
        while True:
            try:
                socket.create_connection((host, int(port)), 5).close()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
        patience = timedelta(seconds=_FIND)
        return stores().TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=patience)

    def _keys(self, attempt: int) -> Any:
        return stores().PrefixStore(secret.prefix(f"{self._job}/{attempt}"), self._meeting)

    def _answer(self, store: Any, own: int) -> None:
        """Write the plan when all have come: the host has the first ranks, the others follow by their addresses."""
        said = {}
        for number in range(1, self._nodes + 1):
            found = self._read(store, f"node/{number}", f"{number - 1} of {self._nodes} launchers have come")
            try:
                said[number] = str(found["address"]), int(found["count"])
            except (KeyError, TypeError, ValueError) as error:
                raise NoMeeting(f"what launcher {number} says is no number of ranks") from error
        order = sorted(said, key=lambda number: (number != own, said[number][0], number))
        first, node, size = {}, {}, 0
        for place, number in enumerate(order):
            first[number], node[number] = size, place
            size += said[number][1]
        address = towards(self._endpoint)
        self._store = listen(address)
        plan = {"address": address, "port": self._store.port, "first": first, "node": node, "size": size}
        _write(store, "plan", plan)

    def _read(self, store: Any, key: str, missing: str) -> Any:
        deadline = time.monotonic() + _COME
        while not store.check([key]):  # not `wait`, in which no signal would be heard
            if time.monotonic() > deadline:
                raise NoMeeting(f"{missing} after {_COME:.0f} s")
            time.sleep(_PAUSE)
        text = store.get(key)
        try:
            if len(text) > _LONGEST:
                raise secret.BrokenSeal("a message is too long")
            return json.loads(secret.opened(text))
        except (ValueError, RecursionError) as error:
            raise NoMeeting(
                f"somebody else writes to {self._endpoint}, or {secret.NAME} is not the same on all machines"
            ) from error


def _write(store: Any, key: str, value: Any) -> None:
    store.set(key, secret.closed(json.dumps(value).encode()))
