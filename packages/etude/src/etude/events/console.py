"""Prints the log: a live line on a terminal, plain periodic lines elsewhere, and the same lines in ``log.txt``."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from etude.errors import printable
from etude.events.record import TIMING_PREFIXES, Record
from etude.units import duration

if TYPE_CHECKING:
    from rich.progress import Progress


class Console:
    """Prints log lines to standard error, above a live progress line if that is a terminal.

    The live line is drawn ten times a second by a separate thread; a step of training does nothing for it. In a
    notebook records go to the log alone, because live curves show them, and the rest goes to standard output, because
    standard error looks like a mistake there.
    """

    def __init__(
        self, *, log: str | Path | None = None, stream: TextIO | None = None, quiet: bool = False,
        notebook: bool = False,
    ) -> None:  # fmt: skip
        self.stream = stream or (sys.stdout if notebook else sys.stderr)
        self.quiet, self.notebook = quiet, notebook
        self.log = open(log, "a", encoding="utf-8", buffering=1) if log else None  # noqa: SIM115
        self.progress: Progress | None = None
        self._read: Callable[[], Mapping[str, Any]] | None = None

    def watch(self, read: Callable[[], Mapping[str, Any]]) -> None:
        """Start the live line; ``read`` returns step, steps, epoch, epochs, loss, lr and steps per second."""
        self._read = read
        if not self.quiet and self.stream.isatty():
            self.progress = _live(self.stream, read)
            self.progress.start()

    def write(self, record: Record) -> None:
        if record.split == "event" and all(name.startswith(TIMING_PREFIXES) for name in record.values):
            return  # a warning has said it
        if record.is_media_alone:
            return
        where = dict(self._read()) if self._read else {}
        self.say(format_record(record, where), screen=not self.notebook)

    def say(self, text: str, *, more: str = "", screen: bool = True) -> None:
        """Write one line to the screen and to ``log.txt``; ``more`` is for the log alone."""
        line = printable(text)
        if self.log is not None:
            self._note(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}{printable(more)}\n")
        if self.quiet or not screen:
            return
        if self.progress is not None:
            self.progress.console.print(line, markup=False, highlight=False)
            return
        try:
            print(line, file=self.stream, flush=True)
        except OSError:  # the terminal or the pipe is gone; the run goes on
            self.quiet = True

    def _note(self, line: str) -> None:
        """Write to the log. If it cannot be written, warn once and continue without it."""
        assert self.log is not None
        try:
            self.log.write(line)
        except OSError as error:
            self._close_log()
            warnings.warn(f"log.txt cannot be written ({error.strerror or error}) and is switched off", stacklevel=3)

    def reopen(self, log: Path) -> None:
        """Go on in another file: the one that was open is deleted."""
        self._close_log()
        self.log = open(log, "a", encoding="utf-8", buffering=1)  # noqa: SIM115

    def _close_log(self) -> None:
        if self.log is not None:
            log, self.log = self.log, None
            with suppress(OSError):
                log.close()

    def rest(self) -> None:
        """Remove the live line, for a summary or a question."""
        if self.progress is not None:
            self.progress.stop()
            self.progress = None

    def close(self) -> None:
        self.rest()
        self._close_log()


def format_record(record: Record, where: Mapping[str, Any]) -> str:
    """Format a record: ``epoch 3/20  step 60/460  loss 0.4312  lr 9.8e-04  812 steps/s  0:01 left``"""
    epoch = min(record.epoch + 1, where["epochs"]) if where.get("epochs") else record.epoch + 1
    head = f"epoch {_of(epoch, where.get('epochs'))}  step {_of(record.step, where.get('steps'))}"
    values = {
        n: v for n, v in record.values.items() if not n.startswith(TIMING_PREFIXES) and not _is_of_group(n, record)
    }
    shown = "  ".join(f"{name} {number(value)}" for name, value in values.items())
    if record.split != "train":
        return f"{head}  {record.split}: {shown}"
    rate = record.values.get("throughput/steps_per_second")
    tail = f"  {speed(rate)}" if rate else ""
    steps = where.get("steps")
    if rate and steps:
        tail += f"  {duration((steps - record.step) / rate)} left"
    return f"{head}  {shown}{tail}"


def _is_of_group(name: str, record: Record) -> bool:
    """Return whether a rate is that of a further parameter group: there may be dozens of them."""
    return name.startswith(("lr/", "momentum/")) and any(
        name.startswith(f"{other}/") for other in record.values if other.startswith(("lr", "momentum"))
    )


def number(value: float) -> str:
    """Format a number with four decimals, small and large ones with an exponent, and counts as they are."""
    if 10 <= abs(value) < 1e5 and float(value).is_integer():
        return f"{value:.0f}"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e5):
        return f"{value:.2e}"
    return f"{value:.4f}"


def speed(rate: float) -> str:
    """Format a speed: ``812 steps/s``, ``2.5 steps/s``, and ``4.0 s/step`` for slow ones."""
    if rate < 1:
        return f"{1 / rate:.1f} s/step"
    return f"{rate:.0f} steps/s" if rate >= 10 else f"{rate:.1f} steps/s"


def _of(value: int, total: int | None) -> str:
    return f"{value:>{len(str(total))}}/{total}" if total else str(value)


def _live(stream: TextIO, read: Callable[[], Mapping[str, Any]]) -> Progress:
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.text import Text

    class Facts(ProgressColumn):
        def render(self, task: Task) -> Text:
            where = read()
            task.completed = where["step"]
            parts = [f"epoch {_of(min(where['epoch'] + 1, where['epochs'] or 10**9), where['epochs'])}"]
            parts.append(f"step {_of(where['step'], where['steps'])}")
            parts += [f"{name} {number(where[name])}" for name in ("loss", "lr") if where.get(name) is not None]
            rate = where.get("rate")
            if rate:
                parts.append(speed(rate))
                if where["steps"]:
                    parts.append(f"{duration((where['steps'] - where['step']) / rate)} left")
            return Text("  ".join(parts))

    total = read()["steps"]
    progress = Progress(
        BarColumn(bar_width=24), Facts(), console=RichConsole(file=stream), refresh_per_second=10, transient=True
    )
    progress.add_task("train", total=total)
    return progress
