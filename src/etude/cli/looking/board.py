"""``etude board [DIR]``: serves a live page of all runs below a folder."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "board",
        help="watch all runs below a folder in the browser",
        description="Serve a live page of the runs below DIR: search, overlay, compare, log. Changes nothing. "
        "Needs the extra [board].",
    )
    parser.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="folder to watch (default: runs)")
    parser.add_argument("--port", type=int, default=6007, help="port (default 6007; 0 picks a free one)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)"
    )
    parser.add_argument("--expose", action="store_true", help="allow other machines, with the token")
    parser.add_argument("--token", default="", help="token to require (default: a new one, printed)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from etude.board.serve import serve
    from etude.errors import UserError

    if not 0 <= args.port < 65536:
        raise UserError(f"--port: {args.port} is not a port (0 to 65535)")
    serve(Path(args.folder), host=args.host, port=args.port, expose=args.expose, token=args.token)
    return 0
