"""Finds the largest batch that fits: trains two steps with batches twice as large each time, then halves the interval.

Every try is a separate process, so a size that does not fit takes nothing else down. On a CPU, you give the limit.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from etude.errors import ConfigError, UserCodeError, UserError
from etude.fast_dataclass import record

#: What a loader says about a batch that is larger than its data.
_FEW = re.compile(r"has (\d+) samples, fewer than one batch")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@record
class Try:
    """One batch size: whether it fits, and the most memory that the process had."""

    batch_size: int
    fits: bool
    peak: int
    #: The samples of the training data, where they are fewer than the batch: larger ones would be the same.
    samples: int | None = None


def fit_batch(
    config: str, overrides: Sequence[str], *, limit: int, start: int, most: int, say: Callable[[Try], object]
) -> int:
    """Return the largest batch size up to ``most`` whose process stays below ``limit`` bytes."""
    attempt = partial(_attempt, config, overrides, limit)
    good, bad = 0, most + 1
    for size in _doubling(start, most):
        outcome = attempt(size)
        say(outcome)
        if not outcome.fits:
            bad = size
            break
        if outcome.samples is not None:
            return outcome.samples
        good = size
    if not good:
        raise ConfigError(
            f"not even a batch of {start} fits into {shown(limit)}", hint="give a smaller --start or more memory"
        )
    while bad - good > max(1, good // 16):
        middle = (good + bad) // 2
        outcome = attempt(middle)
        say(outcome)
        good, bad = (middle, bad) if outcome.fits else (good, middle)
    return good


def _doubling(start: int, most: int) -> Iterator[int]:
    while start < most:
        yield start
        start *= 2
    yield most


def _attempt(config: str, overrides: Sequence[str], limit: int, size: int) -> Try:
    words = [sys.executable, "-m", "etude", "train", config, *overrides, f"data.train.batch_size={size}"]
    process = subprocess.Popen([*words, "--fast-dev-run", "-q"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace")
    # It tells the peak memory of this very process. Popen must not wait for it once more.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    out_of_memory = process.returncode in (-9, 137) or "out of memory" in said or "can't allocate" in said
    if process.returncode == UserError.exit_code and not out_of_memory:
        raise UserError("\n".join(re.sub(r"^etude: (error: )?", "", line) for line in said.strip().splitlines()))
    if process.returncode and not out_of_memory:
        raise UserCodeError(f"a batch of {size} failed with exit code {process.returncode}:\n{said.strip()}")
    few = _FEW.search(said)
    return Try(size, not process.returncode and peak <= limit, peak, int(few[1]) if few else None)


def available_memory() -> int:
    """Return the memory of this machine, or the limit that the process already has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return total if soft == resource.RLIM_INFINITY else min(total, soft)


def parse_bytes(text: str) -> int:
    """Read an amount of memory.

    >>> parse_bytes("2G"), parse_bytes("512M")
    (2147483648, 536870912)
    """
    number, unit = text.strip().upper().removesuffix("B"), 1
    if number[-1:] in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1]]
    try:
        return int(float(number) * unit)
    except ValueError:
        raise UserError(f"{text!r} is not an amount of memory; write 2G or 512M") from None


def shown(size: int) -> str:
    """Return bytes for people: ``1.5 GB``."""
    if size >= 1 << 30:
        return f"{size / (1 << 30):.1f} GB"
    return f"{size / (1 << 20):.4g} MB" if size >= 1 << 20 else f"{size / (1 << 10):.3g} kB"
