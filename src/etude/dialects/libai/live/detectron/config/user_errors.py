"""Reports what a yacs config asks for and cannot have, with its keys.

A script may build its parts in any order, long after the config was read; the part that refuses a value does not know
whose it was.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from etude.dialects.libai.lazy.reading.errors import is_users, put_on
from etude.errors import ConfigError


@contextmanager
def about(keys: str, *, hint: str = "") -> Iterator[None]:
    """Report what is refused inside, with no user-defined code involved, with these ``keys``."""
    try:
        yield
    except (AssertionError, LookupError, ValueError, ArithmeticError, RuntimeError, OSError) as error:
        if not any(is_users(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
            said = error if isinstance(error, OSError) or not error.args else error.args[0]
            message = str(said) or type(error).__name__
            put_on(error, ConfigError(message, at=keys, hint=hint or getattr(error, "etude_hint", "")))
        raise
