"""Allows pickles to run code. They may not, unless you pass ``--trust`` or set ``ETUDE_TRUST=1`` for one process.

It is kept in the environment so that the processes which a run starts (data workers, ranks) know it too; a config
cannot say it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

NAME = "ETUDE_TRUST"
#: How a message that refuses something ends.
ADVICE = f"--trust, or {NAME}=1, would let it run: only for a file whose origin you know"


def is_given() -> bool:
    """Return whether files that hold code are run as they ask."""
    return os.environ.get(NAME, "") not in ("", "0")


@contextmanager
def given(yes: bool = True) -> Iterator[None]:
    """Trust inside the block, in this process and in those that it starts; nothing changes unless ``yes``."""
    before = os.environ.get(NAME)
    if yes:
        os.environ[NAME] = "1"
    try:
        yield
    finally:
        if yes:
            os.environ.pop(NAME, None) if before is None else os.environ.__setitem__(NAME, before)
