"""Runs `etude` commands in forks of a server process that has imported torch already.

A fork starts at once, while a fresh interpreter takes seconds to import torch. The server is the one that
:mod:`multiprocessing` keeps for the start method ``forkserver``; it ends with this process.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence

#: What takes long to import; the second is what torch imports when an optimizer is made.
_HEAVY = ["etude.session.session", "torch._dynamo"]


def run(words: Sequence[str]) -> tuple[int, str]:
    """Run `etude WORDS`; return its exit code (negative for a signal) and what it printed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_HEAVY)
    with tempfile.NamedTemporaryFile() as said:
        process = context.Process(target=_live, args=(list(words), said.name))
        process.start()
        try:
            process.join()
        finally:
            process.kill()  # Ctrl-C ends the command, too
        assert process.exitcode is not None
        return process.exitcode, said.read().decode(errors="replace")


def _live(words: list[str], said: str) -> None:
    """Run the command in the fork, and exit."""
    from etude.cli import main

    code = 1
    try:
        # How this process was made must not decide how a DataLoader makes its workers.
        multiprocessing.set_start_method(None, force=True)
        output = os.open(said, os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1), os.dup2(output, 2)
        sys.argv = ["etude", *words]
        code = main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
