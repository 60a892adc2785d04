"""What a tree of processes listens on, as the kernel tells it."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.dist.conftest import PATIENCE, Job, descendants

_LISTENS, _UNIX_LISTENS = "0A", 1 << 16


@dataclass(frozen=True)
class Door:
    """A listening socket: ``where`` is an address and port, or the path of a socket of this machine. It is narrow if
    nobody but this machine (TCP) or this user (a path) can come in."""

    pid: int
    kind: str
    where: str
    is_narrow: bool


def _is_narrow(kind: str, where: str) -> bool:
    if kind == "tcp":
        address = ipaddress.ip_address(where.rpartition(":")[0])
        return address.is_loopback or getattr(address, "ipv4_mapped", None) == ipaddress.ip_address("127.0.0.1")
    # A name without a file has no permissions.
    return where.startswith("/") and not stat.S_IMODE(os.stat(os.path.dirname(where)).st_mode) & 0o077


def doors(pid: int) -> set[Door]:
    """The listening sockets of a process and of everything below it."""
    found = set()
    for one in [pid, *descendants(pid)]:
        with suppress(OSError):
            sockets = set()
            for link in Path(f"/proc/{one}/fd").iterdir():
                with suppress(OSError):
                    sockets.update(re.findall(r"^socket:\[(\d+)\]$", os.readlink(link)))
            listening = _listening(one)
            there = [listening[inode] for inode in sockets if inode in listening]
            found |= {Door(one, *place, _is_narrow(*place)) for place in there}
    return found


def _listening(pid: int) -> dict[str, tuple[str, str]]:
    """Inode → kind and place of the listening sockets in the network of a process."""
    found = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTENS:
                address, port = words[1].split(":")
                found[words[9]] = "tcp", f"{_address(address)}:{int(port, 16)}"
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[3], 16) & _UNIX_LISTENS:
            found[words[6]] = "unix", words[7] if len(words) > 7 else ""
    return found


def _address(text: str) -> str:
    """The kernel writes addresses as numbers of 32 bits in the machine's own (little-endian) order."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    return str(ipaddress.ip_address(raw))


def during(job: Job, pid: int) -> set[Door]:
    """Every door that was open at any moment until the job ends."""
    found: set[Door] = set()
    deadline = time.monotonic() + PATIENCE
    while job.jobs.answers.empty():
        assert time.monotonic() < deadline
        found |= doors(pid)
        time.sleep(0.02)
    return found
