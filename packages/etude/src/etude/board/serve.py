"""Opens the board's address and serves it until Ctrl-C."""

from __future__ import annotations

import errno
import secrets
import socket
from pathlib import Path

from etude.errors import MissingExtra, UserError, printable

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at ``host:port``; a port that is taken is a mistake with a remedy."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(256)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken; choose another with --port (0: any free one)") from None
        raise UserError(f"cannot listen at {printable(host)}:{port}: {error.strerror or error}") from None
    return found


def serve(root: Path, *, host: str, port: int, expose: bool = False, token: str = "") -> None:
    """Serve the board. Anything but the loopback needs ``expose``, and then has a token."""
    if host not in LOOPBACK and not expose:
        raise UserError(f"--host {printable(host)} lets others in; add --expose, then a token is asked for")
    if not root.is_dir():
        hint = "; `etude train CONFIG` makes it" if root == Path("runs") else ""
        raise UserError(f"there is no folder {printable(str(root))}{hint}")
    try:
        import uvicorn

        from etude.board.app import make_app
    except ImportError as error:
        if isinstance(error, MissingExtra):
            raise
        raise MissingExtra("starlette", "board", "the board") from None
    open_to_others = host not in LOOPBACK
    token = token or (secrets.token_urlsafe(18) if open_to_others else "")
    app = make_app(root, hosts=(host, socket.gethostname()) if open_to_others else (), token=token)
    with listen("127.0.0.1" if host == "localhost" else host, port) as found:
        # A wildcard address (0.0.0.0) is none that a browser elsewhere could open.
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        query = f"/?token={token}" if token else "/"
        print(
            f"board of {printable(str(root))}: http://{shown}:{found.getsockname()[1]}{query}  (Ctrl-C ends it)",
            flush=True,
        )
        settings = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            # An open page has a stream without an end, which Ctrl-C must not wait for.
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(settings).run(sockets=[found])
