"""Runs several commands one after another, each in its own process, without importing torch again.

A helper process imports what every command needs, and forks for each. Where forking such a process is not safe, every
command gets a fresh one.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from etude.errors import EtudeError

#: What takes long to import; the second is what torch imports when an optimizer is made.
_HEAVY = ("etude.session.session", "torch._dynamo")


class Forks:
    """``with Forks() as forks: code, said = forks.run(["train", "config.yaml"])``; a signal is a negative code."""

    def __init__(self) -> None:
        self._helper: subprocess.Popen[str] | None = None
        if sys.platform == "linux":
            command = [sys.executable, "-m", "etude.cli.forks"]
            self._helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, words: Sequence[str]) -> tuple[int, str]:
        if self._helper is None:
            done = subprocess.run([sys.executable, "-m", "etude", *words], capture_output=True, text=True)
            return done.returncode, done.stdout + done.stderr
        assert self._helper.stdin is not None and self._helper.stdout is not None
        print(json.dumps(list(words)), file=self._helper.stdin, flush=True)
        answer = self._helper.stdout.readline()
        if not answer:
            raise EtudeError(f"the process that runs `etude {words[0]}` has ended with code {self._helper.wait()}")
        code, said = json.loads(answer)
        return int(code), str(said)

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Stop the helper; after an error (Ctrl-C) also the running command."""
        if self._helper is not None:
            if error is not None:
                self._helper.terminate()
            self._helper.communicate()


def serve() -> None:
    """Serve commands: read a line with arguments, run it in a fork, write a line with exit code and output."""
    for name in _HEAVY:
        importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    signal.signal(signal.SIGTERM, _end)
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                _live(json.loads(line), said.fileno())
            _alive.append(child)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            _alive.clear()
            said.seek(0)
            print(json.dumps([code, said.read().decode(errors="replace")]), flush=True)


_alive: list[int] = []


def _end(number: int, frame: object) -> None:
    for child in _alive:
        os.kill(child, signal.SIGKILL)
    os._exit(143)


def _live(words: list[str], said: int) -> None:
    """Run the command in the fork, and exit."""
    from etude.cli import main

    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 1), os.dup2(said, 2)
        sys.argv = ["etude", *words]
        code = main(words)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
