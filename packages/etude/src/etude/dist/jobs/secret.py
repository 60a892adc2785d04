"""Seals what the processes of a job say to each other, so that nobody else can speak for one of them. Imports no torch.

Messages between ranks are pickles, and a pickle is a program: a message is opened only if its seal is right. On one
machine, the launcher draws a secret for each job. On several machines it is what ``ETUDE_JOB_SECRET`` says on each of
them; without it (and under torchrun or srun) the seal keeps out accidents, and the network has to be trusted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

NAME = "ETUDE_JOB_SECRET"
#: Bytes of a seal.
SIZE = 32


class BrokenSeal(ValueError):
    """A message is not by a process of this job."""


def draw() -> str:
    """Return a new secret."""
    return secrets.token_hex(16)


def seal(data: bytes) -> bytes:
    """Return the seal of ``data``."""
    return hmac.digest(_key(), data, "sha256")


def unseal(data: bytes, mark: bytes) -> bytes:
    """Return ``data`` if ``mark`` is its seal; raise BrokenSeal otherwise."""
    if not hmac.compare_digest(seal(data), mark):
        raise BrokenSeal("a message is not by a process of this job")
    return data


def closed(data: bytes) -> bytes:
    """Return ``data`` with its seal."""
    return seal(data) + data


def opened(message: bytes) -> bytes:
    """Return what :func:`closed` was given; raise BrokenSeal if ``message`` is not by it."""
    return unseal(message[SIZE:], message[:SIZE])


def prefix(name: str) -> str:
    """Return the beginning of the keys of this job in a store that others reach, too."""
    return f"etude/{seal(name.encode()).hex()}"


def _key() -> bytes:
    return hashlib.sha256(os.environ.get(NAME, "").encode()).digest()
