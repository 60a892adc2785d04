"""Escapes what is printed from the folders of runs: anybody may have written them, and a terminal obeys some texts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from etude.errors import printable

#: Moves to the top of an empty screen, for a page that is drawn again.
CLEAR = "\x1b[2J\x1b[H"


class Escaped:
    """A stream that writes lines and tabs as they are, and every other control character as an escape."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        if text != CLEAR:
            text = "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Let everything that is printed inside the block be escaped."""
    with redirect_stdout(Escaped(sys.stdout)):
        yield
