"""What the benchmarks share: a job of fixed size, alternating blocks, and a table."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch


@dataclass(frozen=True)
class Ratio:
    """A measured ratio (or count) and the goal it is held against."""

    name: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def goal(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_least is not None else ""

    @property
    def holds(self) -> bool:
        return not (
            (self.at_most is not None and round(self.value, 2) > self.at_most)
            or (self.at_least is not None and round(self.value, 2) < self.at_least)
        )


def report(ratios: list[Ratio], file: Path | None = None) -> None:
    """Print the ratios beside their goals, and keep them for ``run_all.py`` if it asks for that."""
    print(page(ratios))
    if file is not None:
        file.write_text(json.dumps([asdict(ratio) for ratio in ratios]))


def page(ratios: list[Ratio]) -> str:
    rows = [(r.name, f"{r.value:.2f}", r.goal, "" if r.holds else "no", r.note) for r in ratios]
    return table(rows, ("what", "measured", "goal", "holds", ""))


def small_job(width: int = 64, layers: int = 4, batch: int = 32) -> tuple[Callable[[], torch.nn.Module], list]:
    """A model of a few layers and an epoch of 128 batches (16 and again): small, so that the engine's own cost shows."""
    generator = torch.Generator().manual_seed(0)
    data = [
        (torch.randn(batch, width, generator=generator), torch.randint(10, (batch,), generator=generator))
        for _ in range(16)
    ]

    def model() -> torch.nn.Module:
        torch.manual_seed(0)
        blocks = [m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
        return torch.nn.Sequential(*blocks, torch.nn.Linear(width, 10))

    return model, data * 8


def compare(contestants: dict[str, Callable[[], float | None]], *, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each contestant in every round, taken in turn so that a busy machine disturbs all alike.

    A contestant that returns seconds has taken the time of its steps itself, without what it had to set up before.
    """
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, work in contestants.items():
            before = time.process_time()
            own = work()
            if number:
                times[name].append(time.process_time() - before if own is None else own)
    return times


def ratio(times: dict[str, list[float]], name: str, reference: str) -> float:
    """The median over rounds of one contestant's time over the reference's in the same round."""
    return statistics.median(a / b for a, b in zip(times[name], times[reference], strict=True))


def operations(make: Callable[[int], Callable[[], Any]], *, short: int = 256, long: int = 512) -> float:
    """Operations of the Python interpreter per step: what a job of ``long`` steps takes beyond one of ``short``.

    No clock is read, so a busy machine changes nothing. What torch does in C++ is not counted.
    """
    counts = []
    for steps in (short, long):
        work = make(steps)
        work()
        counts.append(_counted(work))
    return (counts[1] - counts[0]) / (long - short)


def _counted(work: Callable[[], Any]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            count += 1
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def table(rows: list[tuple[str, ...]], heads: tuple[str, ...]) -> str:
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])
