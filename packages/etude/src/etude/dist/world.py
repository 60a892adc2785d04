"""Finds rank and world size, and the address under which other machines reach this one.

A machine's own name often leads to 127.0.1.1, and it may have several networks. The one that leads to the meeting place
is the one that the others are on. No torch is needed to know any of it.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from etude.errors import UserError, printable
from etude.fast_dataclass import record

#: What torchrun and SLURM call the same four numbers.
_TORCHRUN = {"rank": "RANK", "size": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_size": "LOCAL_WORLD_SIZE"}
_SLURM = {
    "rank": "SLURM_PROCID", "size": "SLURM_STEP_NUM_TASKS", "local_rank": "SLURM_LOCALID",
    "local_size": "SLURM_STEP_TASKS_PER_NODE",
}  # fmt: skip
_PORTS = (20_000, 20_000)
_SIOCGIFADDR = 0x8915


@record
class World:
    """Rank and world size. A single process unless a launcher says otherwise."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    #: Where the ranks meet.
    address: str = ""
    port: int = 0
    #: How often the group was started before, and whether the launcher's agent hosts the meeting place.
    attempt: int = 0
    hosted: bool = False

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def is_many(self) -> bool:
        return self.size > 1

    def announce(self) -> None:
        """Set torchrun's variables, which other systems read; SLURM's own are not enough for them."""
        if self.is_many and "WORLD_SIZE" not in os.environ:
            os.environ.update({name: str(getattr(self, word)) for word, name in _TORCHRUN.items()})
            os.environ.update(MASTER_ADDR=self.address, MASTER_PORT=str(self.port))
            os.environ["TORCHELASTIC_RESTART_COUNT"] = str(self.attempt)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> World:
        """Read the world from the variables of torchrun (``RANK``, ``WORLD_SIZE`` …) or ``srun``."""
        given = os.environ if environment is None else environment
        if "WORLD_SIZE" in given or "RANK" in given:
            return cls._from_torchrun(given)
        if int(given.get("SLURM_STEP_NUM_TASKS", "1") or 1) > 1:
            return cls._from_slurm(given)
        return cls()

    @classmethod
    def _from_torchrun(cls, given: Mapping[str, str]) -> World:
        numbers = {word: _number(given, name) for word, name in _TORCHRUN.items()}
        world = cls(
            rank=numbers["rank"] or 0,
            size=numbers["size"] or 1,
            local_rank=numbers["local_rank"] or 0,
            local_size=numbers["local_size"] or 1,
            address=given.get("MASTER_ADDR", ""),
            port=_number(given, "MASTER_PORT") or 0,
            attempt=int(given.get("TORCHELASTIC_RESTART_COUNT", "0")),
            hosted=given.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        )
        if world.rank >= world.size:
            raise UserError(f"the environment says RANK={world.rank} and WORLD_SIZE={world.size}; ranks count from 0")
        return world

    @classmethod
    def _from_slurm(cls, given: Mapping[str, str]) -> World:
        nodes = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST") or "localhost"
        job = int(given.get("SLURM_JOB_ID", "0") or 0)
        per_node = re.match(r"\d+", given.get(_SLURM["local_size"], "1"))
        return cls(
            rank=_number(given, _SLURM["rank"]) or 0,
            size=_number(given, _SLURM["size"]) or 1,
            local_rank=_number(given, _SLURM["local_rank"]) or 0,
            local_size=int(per_node[0]) if per_node else 1,
            address=given.get("MASTER_ADDR") or first_host(nodes),
            # All tasks work out the same port, and two jobs on a machine work out two.
            port=int(given.get("MASTER_PORT") or _PORTS[0] + job % _PORTS[1]),
            attempt=int(given.get("SLURM_RESTART_COUNT", "0") or 0),
        )


ALONE = World()


def first_host(nodes: str) -> str:
    """Return the first host of a SLURM node list.

    >>> first_host("gpu[007-009,12],login1"), first_host("a,b")
    ('gpu007', 'a')
    """
    match = re.match(r"([^\[,]+)(?:\[([^\],-]+))?", nodes)
    return f"{match[1]}{match[2] or ''}" if match else nodes


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None or text == "":
        return None
    if not text.isdecimal():
        raise UserError(f"the environment says {name}={printable(text)[:40]}, which is not a rank, size or port")
    return int(text)


def stat_of(process: int | str) -> list[str]:
    """Return what ``/proc`` says of a process after its name, first its state; empty if the system does not tell."""
    try:
        # The name is in parentheses, and may have spaces and parentheses itself.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def towards(endpoint: str) -> str:
    """Return the address of this machine on the route to ``host:port``; empty if there is no route."""
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host or endpoint, int(port) if host and port.isdecimal() else 1))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def is_here(endpoint: str) -> bool:
    """Return whether the meeting place is on this machine."""
    try:
        return socket.gethostbyname(endpoint.rpartition(":")[0] or endpoint) == towards(endpoint)
    except OSError:
        return False


def interface_of(address: str) -> str:
    """Return the network interface that has ``address``; empty if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            # struct ifreq: 16 bytes of name, then a sockaddr_in, whose address comes after 4 bytes.
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""
