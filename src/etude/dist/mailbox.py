"""Messages between ranks that no other rank has to wait for, unlike collectives: for threads in the background."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import distributed
from torch._C._distributed_c10d import PrefixStore

from etude.errors import PeerError

_PAUSE = 0.01


class Mailbox:
    """Values by key, in the store at which the ranks have met."""

    def __init__(self, name: str) -> None:
        self._store = PrefixStore(f"etude/{name}", distributed.distributed_c10d._get_default_store())

    def put(self, key: str, value: Any) -> None:
        self._store.set(key, json.dumps(value))

    def get(self, key: str, patience: Callable[[], float], whose: str) -> Any:
        """Wait for the value of ``key``; an error names ``whose`` it is when ``patience()`` seconds have passed."""
        began = time.monotonic()
        while not self._store.check([key]):
            waited = time.monotonic() - began
            if waited > patience():
                raise PeerError(f"{whose} has not written its share of a checkpoint for {waited:.0f} s")
            time.sleep(_PAUSE)
        return json.loads(self._store.get(key))

    def forget(self, key: str) -> None:
        """Make room; a store that cannot delete keeps the value."""
        with suppress(RuntimeError, NotImplementedError):
            self._store.delete_key(key)
