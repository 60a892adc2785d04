"""``etude completion SHELL``: a script for bash, zsh or tcsh."""

from __future__ import annotations

import argparse
from typing import Any

from etude.errors import MissingExtra


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="print shell completion",
        description='Print a completion script:  eval "$(etude completion bash)"',
    )
    parser.add_argument("shell", choices=["bash", "zsh", "tcsh"])
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise MissingExtra("shtab", "completion", "shell completion") from error
    from etude.cli import full_parser

    print(shtab.complete(full_parser(), shell=args.shell))
    return 0
