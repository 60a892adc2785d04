"""Everything Étude raises on purpose, and the exit code that each ends the command with.

.. code-block:: text

    EtudeError                     1   an unexpected failure of the engine
    ├── UserError                  2   the config or the command line has a mistake; nothing was trained
    │   ├── ConfigError                one or more findings, each with file and line
    │   ├── MissingExtra               an optional package is needed: what to install
    │   └── OutOfScope                 an import name of another system that Étude does not serve
    ├── UserCodeError              3   a model, metric or hook of the user raised
    │   └── HookError                  which hook, at which point, at which step
    ├── Diverged                   4   a loss that is not finite, and the policy says stop
    ├── DataError                  5   the data pipeline failed: which sample, which worker
    ├── SaveError                  6   a checkpoint could not be written
    ├── ResumeError                7   nothing usable to resume from, or a checkpoint that was refused
    │   └── NoCheckpoint           2   there is none where you said it is
    └── PeerError                  8   another process of the run was lost or timed out

    Stopped                 75/130/143   not a failure: asked to stop (scheduler, Ctrl-C, SIGTERM), state saved
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

from etude.fast_dataclass import record, replace

_LOST = r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)"
_IN_WORKER = r"in DataLoader worker process (\d+)"
_FRAME = r'File "([^"]+)", line (\d+)'
#: What numpy and Pillow say of code for older releases → the releases that take it.
_OLD_RELEASES = {
    r"Python integer -?\d+ out of bounds for u?int\d+": "numpy<2",
    r"was removed in the NumPy 2\.0 release|compiled using NumPy 1\.|numpy\.dtype size changed": "numpy<2",
    r"only 0-dimensional arrays can be converted to Python scalars": "numpy<2.4",
    r"module 'numpy' has no attribute '(in1d|trapz)'": "numpy<2.4",
    r"module 'numpy' has no attribute": "numpy<1.24",
    r"bits must be between or equal to 1 and 8": "pillow<13",  # posterize(image, 0) of augmentations
}
#: What projects, and torch, say where a model has to be on a GPU and there is none.
_NO_GPU = r'Unavailable device "cpu"|Only available for cuda|not compiled with CUDA|[Nn]o (CUDA GPUs|NVIDIA)'
#: Modules → the package that brings them, where it has another name.
_DISTRIBUTIONS = {
    "attr": "attrs",
    "cv2": "opencv-python-headless",
    "modelindex": "model-index",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_OURS = os.path.dirname(os.path.abspath(__file__))
_SYNONYMS = os.path.join(_OURS, "config", "synonyms.txt")


class EtudeError(Exception):
    """The root of all errors that Étude raises on purpose."""

    exit_code = 1


class UserError(EtudeError):
    """A mistake in a config or on the command line."""

    exit_code = 2


@record
class Finding:
    """One mistake: where it stands, what is wrong, and what was probably meant."""

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


class OutOfScope(UserError, ImportError):
    """A name of another system that Étude does not serve; the message says what to use instead."""


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


class Diverged(EtudeError):
    """A loss or weight is not finite and the policy says stop."""

    exit_code = 4


class DataError(EtudeError):
    """The data pipeline failed."""

    exit_code = 5


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


def with_article(kind: str) -> str:
    """Return ``a model``, ``an optimizer``."""
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"


def suggest(name: str, known: Iterable[str], *, most: int = 12, otherwise: str | None = None) -> str:
    """Return the hint that follows an unknown name: the nearest one, or all of them if they are few.

    ``otherwise`` is what to say instead of the list if none is near.
    """
    names = sorted(set(known))
    near = nearest(name, names)
    if near:
        return f"did you mean {near!r}?"
    if otherwise is not None:
        return otherwise
    if not names:
        return "there are none"
    shown = ", ".join(names[:most])
    return f"known: {shown}" + (f", … ({len(names)} in all)" if len(names) > most else "")


def nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that ``name`` was probably meant to be, ignoring case.

    One slip of the fingers (a letter dropped, doubled, swapped or wrong) beats likeness as a whole, so that even a
    name of two letters is found. A word of another system is answered with ours (``learning_rate``: ``lr``).
    """
    meant = meaning(name, known)
    if meant is not None or not known:
        return meant
    from difflib import get_close_matches

    by_fold = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    slips = [candidate for candidate in by_fold if is_slip(folded, candidate)]
    swapped = [candidate for candidate in slips if sorted(candidate) == sorted(folded)]
    found = get_close_matches(folded, swapped or slips or by_fold, n=1, cutoff=0.0 if slips else 0.6)
    return by_fold[found[0]] if found else None


def meaning(word: str, known: Collection[str]) -> str | None:
    """Return the name among ``known`` that means the same as ``word`` in another system.

    >>> meaning("learning_rate", ["lr", "momentum"]), meaning("CosineAnnealingLR", ["Cosine"]), meaning("lr", ["lr"])
    ('lr', 'Cosine', None)
    """
    return next((ours for ours in _synonyms()[0].get(word.casefold(), ()) if ours in known), None)


def elsewhere(word: str) -> str:
    """Return what to write instead of a key that Étude keeps in another section; empty where nothing is known.

    >>> elsewhere("max_epochs"), elsewhere("clip_norm"), elsewhere("nonsense")
    ('train.epochs', 'optim.clip_norm', '')
    """
    ours, instead = _synonyms()
    folded = word.casefold()
    return next((instead[name] for name in (folded, *ours.get(folded, ())) if name in instead), "")


@cache
def _synonyms() -> tuple[dict[str, list[str]], dict[str, str]]:
    """Read the words of other trainers: what we call the same, and what to write instead of a key."""
    ours: dict[str, list[str]] = {}
    instead: dict[str, str] = {}
    with open(_SYNONYMS, encoding="utf-8") as file:
        for line in (line.strip() for line in file if not line.startswith("#")):
            theirs, _, same = line.partition(" = ")
            key, arrow, text = line.partition(" -> ")
            if arrow:
                instead[key] = text
            ours |= dict.fromkeys(theirs.split(), same.split()) if same else {}
    return ours, instead


def is_slip(one: str, other: str) -> bool:
    """Return whether one letter more, less, different or exchanged with its neighbour leads from one to the other."""
    if abs(len(one) - len(other)) > 1 or not set(one) & set(other):
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    a, b = one[start:], other[start:]
    if len(a) != len(b):
        return a[1:] == b or a == b[1:]
    return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


def frames_of(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Return the frames that an exception came through, outermost first, and the line in each."""
    from traceback import walk_tb

    return walk_tb(error.__traceback__)


def printable(text: str) -> str:
    """Return ``text`` on one line without control characters, so that a name or message cannot forge log lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def lost_worker(error: BaseException) -> DataError | None:
    """Return a data error if a worker process of torch's loader died, wherever its exception surfaces."""
    if not isinstance(error, RuntimeError) or not re.search(_LOST, str(error)):
        return None
    return DataError(f"{printable(str(error)).strip()} Out of memory, or of /dev/shm? Fewer workers need less of both")


def raised_in_worker(error: BaseException) -> UserCodeError | None:
    """Return what a data set raised in a process of torch's loader; None if Étude's own code did.

    torch raises it again with the traceback as its text, so that no frame of the data set is left.
    """
    worker = re.search(_IN_WORKER, str(error))
    frames = re.findall(_FRAME, str(error)) if worker else []
    theirs = [frame for frame in frames if not is_library(frame[0])] or frames[-1:]
    if worker is None or not theirs or theirs[-1][0].startswith(_OURS):
        return None
    last = printable(str(error).strip().splitlines()[-1])
    file, line = theirs[-1]
    return UserCodeError(f"{file}:{line}: {last} (in data worker {worker[1]}){release_hint(last)}")


def said_in_worker(error: BaseException) -> str:
    """Return what was raised in a process of torch's loader, without the traceback that is its text; or empty."""
    worker = re.search(_IN_WORKER, str(error))
    last = str(error).strip().splitlines()[-1].removeprefix(f"{type(error).__name__}: ") if worker else ""
    return f"{printable(last)} (in data worker {worker[1]})" if worker else ""


def release_hint(message: str) -> str:
    """Return advice for packages that need GPUs, or another release of numpy, Pillow or torchvision; often empty."""
    if int(os.environ.get("WORLD_SIZE") or 1) > 1 and re.search(_NO_GPU, message):
        return "; this code trains in several processes on GPUs alone: on CPUs train in one (no --nproc, no --launcher)"
    if "operator torchvision::" in message:  # its compiled part does not fit torch, which its import shows first
        return "; this torchvision was built for another torch: install the one of your torch, from the same index"
    for said, releases in _OLD_RELEASES.items():
        if re.search(said, message):
            package = releases.partition("<")[0]
            return (
                f"; this code is for an older {package}: pip install '{releases}', or a newer release of that package"
            )
    return ""


def missing_hint(error: BaseException) -> str:
    """Return what to install for an import of a package that is not there; empty for a module of one that is."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if not name or "." in name or isinstance(error, EtudeError):
        return ""
    return install_hint(name)


def install_hint(module: str) -> str:
    """Return the command that installs the package of a module."""
    return f"pip install {_DISTRIBUTIONS.get(module, module)}"


def is_library(filename: str) -> bool:
    """Return whether a file is Étude's, Python's or an installed package's, and not the user's."""
    return filename.startswith((_OURS, "<frozen", sys.base_prefix)) or "site-packages" in filename
