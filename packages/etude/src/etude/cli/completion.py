"""Print a completion script for bash, zsh or tcsh.

eval "$(etude completion bash)"
"""

from __future__ import annotations

import argparse

from etude.errors import optional


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "tcsh"])


def run(args: argparse.Namespace) -> int:
    from etude.cli import full_parser

    shtab = optional("shtab", "completion", "shell completion")
    print(shtab.complete(full_parser(), shell=args.shell))
    return 0
