"""Under which address the other machines reach this one. Knows no torch.

A machine's own name often leads to 127.0.1.1, and it may have several networks. The one that leads to the meeting place
is the one that the others are on.
"""

from __future__ import annotations

import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915


def towards(endpoint: str) -> str:
    """The address of this machine on the way to ``host:port``; empty if there is no way."""
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
    """The network interface that has ``address``; empty if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""
