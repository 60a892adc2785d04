"""What a data set raised in a worker process, reported as if it had been raised here: with the user-defined line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from etude.config.files import display
from etude.dialects.libai.lazy.reading.errors import is_users, put_on
from etude.errors import UserCodeError

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_WORKER = re.compile(r"in DataLoader worker process (\d+)")


@contextmanager
def telling_of_workers() -> Iterator[None]:
    """torch raises the exception of a worker again with the traceback as its text, and no frame of user code."""
    try:
        yield
    except Exception as error:
        worker = _WORKER.search(str(error))
        if worker is not None:
            frames = [(file, line) for file, line in _FRAME.findall(str(error)) if is_users(file)]
            at = f"{display(frames[-1][0])}:{frames[-1][1]}: " if frames else ""
            last = str(error).strip("'\"").replace("\\n", "\n").strip().splitlines()[-1]
            put_on(error, UserCodeError(f"{at}{last} (in data worker {worker[1]})"))
        raise
