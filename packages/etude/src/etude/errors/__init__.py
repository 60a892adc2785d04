"""Everything Étude raises on purpose, and the exit code that each ends the command with.

.. code-block:: text

    EtudeError                     1   an unexpected failure of the engine
    ├── UserError                  2   the config or the command line has a mistake; nothing was trained
    │   ├── ConfigError                one or more findings, each with file and line
    │   ├── MissingExtra               an optional package is needed: what to install
    │   └── OutOfScope                 an import name of another system that Étude does not serve
    ├── UserCodeError              3   a model, metric or hook of the user raised
    │   ├── HookError                  which hook, at which point, at which step
    │   └── ReturnError            2   what it returned cannot be used
    ├── Diverged                   4   a loss that is not finite, and the policy says stop
    ├── DataError                  5   the data pipeline failed: which sample, which worker
    │   └── SampleError            2   a dataset returned what no batch can be made of
    ├── SaveError                  6   a checkpoint could not be written
    ├── ResumeError                7   nothing usable to resume from, or a checkpoint that was refused
    │   └── NoCheckpoint           2   there is none where you said it is
    └── PeerError                  8   another process of the run was lost or timed out

    Stopped                 75/130/143   not a failure: asked to stop (scheduler, Ctrl-C, SIGTERM), state saved
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from etude.fast_dataclass import record, replace

#: The exit code that asks a scheduler to queue the run again.
REQUEUE = 75


class EtudeError(Exception):
    """The root of all errors that Étude raises on purpose."""

    exit_code = 1


class UserError(EtudeError):
    """A mistake in a config or on the command line."""

    exit_code = 2

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows: the lines of the user, and the message."""
        from traceback import extract_tb, format_list

        from etude.errors.own_code import is_library

        frames = [frame for frame in extract_tb(self.__traceback__) if not is_library(frame.filename)]
        return [*"".join(format_list(frames)).splitlines(), f"{type(self).__name__}: {self}"]


@record
class Finding:
    """One mistake: where it is, what is wrong, and what was probably meant."""

    at: str
    message: str
    hint: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        word = "warning: " if self.severity == "warning" else ""
        return f"{self.at}: {word}{self.message}{hint}" if self.at else f"{word}{self.message}{hint}"


def place_of(finding: Finding) -> tuple[str, int]:
    """Return file and line, to sort by; findings about the command line come after those about files."""
    file, _, line = finding.at.rpartition(":")
    return (file, int(line)) if line.isdigit() else (chr(0x10FFFF), 0)


class ConfigError(UserError):
    """The config or the command line has mistakes. ``findings`` has *all* of them, not only the first."""

    def __init__(self, findings: str | Finding | Iterable[Finding], *, at: str = "", hint: str = "") -> None:
        if isinstance(findings, str):
            findings = [Finding(at, findings, hint)]
        elif isinstance(findings, Finding):
            findings = [findings]
        self.findings: tuple[Finding, ...] = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def with_place(error: ConfigError, at: object) -> ConfigError:
    """Return the same error with the place ``at`` for findings that have none."""
    return ConfigError([replace(finding, at=finding.at or str(at)) for finding in error.findings])


@contextmanager
def placed(at: object) -> Iterator[None]:
    """Add the place in the config to an error inside the block that does not name it."""
    try:
        yield
    except ConfigError as error:
        if all(finding.at for finding in error.findings):
            raise
        raise with_place(error, at) from error


class MissingExtra(UserError, ImportError):
    """An optional package is needed for what was asked; an ``ImportError``, as the missing import would be."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        remedy = f"'etude[{extra}]'" if extra else package
        super().__init__(f"{purpose} needs the package {package!r}: pip install {remedy}")


def optional(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional package; a :class:`MissingExtra` says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtra(module.partition(".")[0], extra, purpose) from None


class OutOfScope(UserError, ModuleNotFoundError):
    """A name of another system that Étude does not serve; the message says what to use instead.

    Projects try an import and go on without what is not there: they expect the error of a missing module.
    """


class UserCodeError(EtudeError):
    """Code of the user raised; the original exception is the ``__cause__``."""

    exit_code = 3


class HookError(UserCodeError):
    """A hook raised: its name, the point it acted at, the step, and where it was defined."""

    def __init__(self, hook: str, point: str, step: int, origin: str, cause: BaseException) -> None:
        self.hook, self.point, self.step, self.origin = hook, point, step, origin
        super().__init__(
            f"hook {hook} ({origin}) raised {type(cause).__name__} at {point}, step {step}: {printable(str(cause))}"
        )


class ReturnError(UserError, UserCodeError):
    """Code of the user returned what cannot be used: whose it is, what came, and what is expected."""


class Diverged(EtudeError):
    """A loss or weight is not finite and the policy says stop."""

    exit_code = 4


class DataError(EtudeError):
    """The data pipeline failed."""

    exit_code = 5


class SampleError(UserError, DataError):
    """A dataset returned what no batch can be made of: whose it is, which sample, what came, and what is expected."""


class SaveError(EtudeError):
    """A checkpoint could not be written."""

    exit_code = 6


class ResumeError(EtudeError):
    """Nothing usable to resume from, or a checkpoint that was refused."""

    exit_code = 7


class NoCheckpoint(UserError, ResumeError):
    """There is no checkpoint at the path that you gave: a mistake of the command or the config."""


class PeerError(EtudeError):
    """Another process of the run was lost or timed out."""

    exit_code = 8


class Stopped(BaseException):
    """Asked to stop; the state was saved. ``exit_code`` tells a scheduler whether to queue the run again."""

    def __init__(self, reason: str, exit_code: int) -> None:
        self.reason, self.exit_code = reason, exit_code
        super().__init__(reason)


def printable(text: str) -> str:
    """Return ``text`` on one line without control characters, so that a name or message cannot forge log lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
