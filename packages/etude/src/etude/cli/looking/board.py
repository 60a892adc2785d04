"""Serve a live page of the runs below DIR: search, overlay, compare, log. Changes nothing. Needs the extra
[board].
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="folder to watch (default: runs)")
    parser.add_argument("--port", type=int, default=6007, help="port (default 6007; 0 picks a free one)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)"
    )
    parser.add_argument("--expose", action="store_true", help="allow other machines, with the token")
    parser.add_argument("--token", default="", help="token to require (default: a new one, printed)")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from etude.board.serve import serve
    from etude.errors import UserError

    if not 0 <= args.port < 65536:
        raise UserError(f"--port: {args.port} is not a port (0 to 65535)")
    serve(Path(args.folder), host=args.host, port=args.port, expose=args.expose, token=args.token)
    return 0
