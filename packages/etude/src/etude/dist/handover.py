"""Hands the state of a replica to one that joins: torchft's checkpoint transport, for those alone who know the job.

torchft's own server listens on every network and gives the state to everybody, and its client runs the pickle that it
gets. This one listens on one address, answers those who know the path, and reads plain data with a seal.
"""

from __future__ import annotations

import io
import threading
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from etude.dist.jobs import secret
from etude.errors import PeerError


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    #: Path → state: what can be asked for now.
    offered: dict[str, bytes]

    def __init__(self, address: str, wait: float) -> None:
        super().__init__((address, 0), _Handler)
        self.wait, self.offered, self.changed = wait, {}, threading.Condition()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        server = self.server
        with server.changed:  # who joins may ask before the state is there
            known = self.path.startswith(f"/{secret.prefix('state')}/")
            found = known and server.changed.wait_for(lambda: self.path in server.offered, server.wait)
            state = server.offered[self.path] if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(state)))
        self.end_headers()
        self.wfile.write(state)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the run records that a replica joins."""


class Handover:
    """What torchft asks of a transport: to send the state of a step, and to fetch that of another replica."""

    def __init__(self, address: str, wait: timedelta) -> None:
        self._server = _Server(address, wait.total_seconds())
        self._address = f"http://{address}:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, name="etude-handover", daemon=True).start()

    def metadata(self) -> str:
        return self._address

    def send_checkpoint(self, dst_ranks: list[int], step: int, state_dict: Any, timeout: timedelta) -> None:
        file = io.BytesIO()
        torch.save(state_dict, file)
        self._offer({_path(step): secret.closed(file.getvalue())})

    def disallow_checkpoint(self) -> None:
        self._offer({})

    def recv_checkpoint(self, src_rank: int, metadata: str, step: int, timeout: timedelta) -> Any:
        with urllib.request.urlopen(metadata.rstrip("/") + _path(step), timeout=timeout.total_seconds()) as answer:
            message = answer.read()
        try:
            return torch.load(io.BytesIO(secret.opened(message)), map_location="cpu", weights_only=True)
        except secret.BrokenSeal as error:
            raise PeerError(f"{error}: the state at {metadata} is refused") from error

    def shutdown(self, wait: bool = True) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _offer(self, states: dict[str, bytes]) -> None:
        with self._server.changed:
            self._server.offered = states
            self._server.changed.notify_all()


def _path(step: int) -> str:
    return f"/{secret.prefix('state')}/{step}"
