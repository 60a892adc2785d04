"""A real S3 server on loopback, and a relay in front of it that can be slow, silent, or gone for a while.

The server is moto's, in a process of its own that ends with this one. Its content is in memory, so that an outage is
made by the relay: what was stored is there again afterwards, as with a real store.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

_SERVE = """
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
#: What a client would ask for credentials and settings of this machine's owner.
_OTHER = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


class Relay:
    """Passes connections on to ``port``; ``down`` refuses and cuts them, ``up`` begins again on the same port."""

    def __init__(self, port: int) -> None:
        self.target = port
        #: Seconds that each piece takes on its way to the server, or back; None: it does not arrive.
        self.delay: float | None = 0.0
        #: Cuts everything when this is true of the bytes of a request; None: never.
        self.cut_at: Callable[[bytes], bool] | None = None
        #: How often ``cut_at`` has come true.
        self.cuts = 0
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.up()

    def up(self) -> None:
        if self._listener is None:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self.port))
            listener.listen(50)
            self.port, self._listener = listener.getsockname()[1], listener
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def down(self, seconds: float = 0.0) -> None:
        """Refuse new connections and cut the open ones; with ``seconds``, come back after so long."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._guard:
            for one in self._open:
                with suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()
        if seconds:
            threading.Timer(seconds, self.up).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            with self._guard:
                self._open |= {client, server}
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        try:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    while self.delay is None:
                        time.sleep(0.05)
                    time.sleep(self.delay)
                    if source is client and self.cut_at is not None and self.cut_at(data):
                        self.cuts += 1
                        self.down(self.outage)
                        return
                    other[source].sendall(data)
        except (OSError, ValueError):
            return
        finally:
            with self._guard:
                self._open -= {client, server}
            client.close(), server.close()

    #: Seconds that the server is gone after a cut.
    outage = 1.0


class ObjectStore:
    """The server, a relay in front of it, and what a process needs to reach it."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._process.stdout is not None
        self.relay = Relay(int(self._process.stdout.readline()))
        self._count = 0

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.relay.port}", "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    def bucket(self) -> str:
        """Create a bucket; return its name."""
        self._count += 1
        name = f"bucket-{os.getpid()}-{self._count}"
        self.files.mkdir(name)
        return name

    @property
    def files(self) -> Any:
        """A client that goes to the server itself, whatever the relay does."""
        import s3fs

        return s3fs.S3FileSystem(
            key="key", secret="secret", endpoint_url=f"http://127.0.0.1:{self.relay.target}", use_listings_cache=False
        )  # fmt: skip

    def calm(self) -> None:
        """End every disturbance."""
        self.relay.delay, self.relay.cut_at, self.relay.cuts = 0.0, None, 0
        self.relay.up()

    def close(self) -> None:
        self.relay.down()
        self._process.kill()
        self._process.communicate()


@contextmanager
def served() -> Iterator[ObjectStore]:
    """A server for the time of the block, with the environment that leads clients of this process to it."""
    store = ObjectStore()
    before = {name: os.environ.get(name) for name in (*store.environment, *_OTHER)}
    for name in _OTHER:
        os.environ.pop(name, None)
    os.environ.update(store.environment)
    try:
        yield store
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        store.close()
