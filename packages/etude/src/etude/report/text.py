"""Shows a run in the terminal: curves, times, best values, warnings, the last lines of its log."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from etude.config import run_files
from etude.errors import UserError, printable
from etude.errors.spelling import nearest, suggest
from etude.metrics.direction import is_scored
from etude.preview.draw import text_plot
from etude.report.records import CLOCK, Curve, Records
from etude.report.runs import RunInfo
from etude.units import counted, duration

_NARROWEST = 24
#: Seconds of a run from which on it says something where they went; as in its summary.
_SHORTEST = 0.5
#: A line of a run's last words: after the time it is indented.
_SUMMARY = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d   ")


def chosen(records: Records, asked: Sequence[str]) -> list[str]:
    """Return the curves to show: those asked for (``accuracy``, ``val/*``), or the losses and the validation's."""
    names = list(records.curves)
    if not asked:
        names = [name for name in names if is_scored(name)]
        wanted = [n for n in names if n in ("train/loss", "train/total_loss") or n.startswith(("val/", "test/"))]
        plain = [n for n in names if not n.startswith(CLOCK)]
        return (wanted or plain)[:4]
    found: list[str] = []
    for pattern in asked:
        hits = [n for n in names if pattern in (n, n.partition("/")[2]) or fnmatchcase(n, pattern)]
        if not hits:
            meant = nearest(pattern, [*names, *(name.partition("/")[2] for name in names)])
            hint = f"did you mean {meant!r}?" if meant else suggest(pattern, names)
            raise UserError(f"the run has no curve {printable(pattern)!r}; {hint}")
        found += [name for name in hits if name not in found]
    return found


def main_curves(records: Records) -> list[str]:
    """Return the loss of training and the main metric of the validation, those that have a curve to show."""
    long = [name for name, curve in records.curves.items() if len(set(curve.steps)) > 1 and is_scored(name)]
    losses = [name for name in long if name in ("train/loss", "train/total_loss")]
    metrics = [name for name in long if name.startswith(("val/", "test/"))]
    return losses[:1] + sorted(metrics, key=lambda name: "loss" in name)[:1]


def draw(name: str, curve: Curve, *, log: bool = False, height: int = 6, width: int | None = None) -> list[str]:
    """Return a curve as lines: its name, last value and how many values are not finite, then the picture."""
    steps, values = curve.steps, curve.values
    if not len(curve):
        return []
    columns = width or max(_NARROWEST, min(100, shutil.get_terminal_size((90, 24)).columns - 14))
    strange = sum(1 for value in values if value - value != 0)
    note = f"  ({strange} of {len(values)} values are not finite)" if strange else ""
    head = f"{printable(name)}  {values[-1]:.5g} at step {steps[-1]:.0f}{note}"
    picture = text_plot(list(zip(steps, values, strict=True)), width=columns, height=height, log=log)
    space = len(picture[0].partition("┤")[0]) if picture else 0
    left, right = f"step {steps[0]:.0f}", f"{steps[-1]:.0f}"
    foot = [f"{'':{space}} {left}{right:>{max(1, columns - len(left))}}"] if picture else ["  nothing to draw"]
    return [head, *picture, *foot]


def overview(info: RunInfo) -> list[str]:
    """Return what a person asks first: name, state, progress, best values."""
    whole = f"/{info.total}" if info.total else ""
    spent = f", {duration(info.seconds)}" if info.seconds else ""
    lines = [f"{printable(info.name)}  {info.state}, step {info.step}{whole}{spent} ({info.dialect})"]
    shown = [name for name in info.best if not name.startswith("train/")] or list(info.best)
    lines += [f"  best    {printable(name)} {info.best[name][0]:.5g} (step {info.best[name][1]})" for name in shown[:6]]
    return lines


def time_lines(status: Mapping[str, Any]) -> list[str]:
    """Return where the time went, as a bar for each share; nothing for a run of a moment."""
    spent = spent_time(status)
    whole = sum(spent.values())
    if whole < _SHORTEST:
        return []
    rows = sorted(spent.items(), key=lambda row: -row[1])
    return ["time"] + [
        f"  {printable(name):<28} {seconds:>8.1f} s {seconds / whole:>4.0%} {'█' * round(24 * seconds / whole)}"
        for name, seconds in rows
        if seconds >= 0.005 * whole
    ]


def slow_lines(status: Mapping[str, Any], most: int = 5) -> list[str]:
    """Return what is known of slow steps: the time lost by cause, and the worst steps with their evidence."""
    slow: Any = status.get("slow")
    try:
        sums = sorted(slow["causes"].items(), key=lambda row: -row[1][1])
        count, lost = sum(number for _, (number, _) in sums), sum(seconds for _, (_, seconds) in sums)
        lines = [f"slow steps  {count} of {slow['steps']}, {lost:.1f} s lost; the median is {slow['median']:.3g} s"]
        for cause, (number, seconds) in sums:
            lines.append(f"  {printable(cause):<28} {seconds:>8.1f} s  {counted(number, 'step')}")
        for one in slow["worst"][:most]:
            why = printable(f"{one['cause']}: {one['why']}")
            lines.append(f"  step {one['step']:.0f} took {one['seconds']:.3f} s: {why}")
    except (TypeError, KeyError, ValueError, AttributeError):  # no step was slow, or another program wrote the file
        return []
    return lines


def spent_time(status: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds by what they were spent on, as ``status.json`` tells."""
    return dict(status.get("time", {}))


def show(info: RunInfo, records: Records, names: Iterable[str], *, log: bool = False, tail: int = 5) -> list[str]:
    """Return the whole page about one run."""
    status = run_files.status(info.path)
    lines = overview(info)
    if "error" in status:
        lines.append(f"  error   {printable(str(status['error']))}")
    if kept := saved(info):
        lines.append(f"  saved   {', '.join(kept)}")
    for name in names:
        lines += ["", *draw(name, records.curves[name], log=log)]
    if records.sampled:
        lines.append("the records are large: curves are drawn from evenly spaced samples of them")
    if records.bad_lines:
        lines.append(f"{records.bad_lines} lines of the records cannot be read and were left out")
    if account := time_lines(status):
        lines += ["", *account]
    if slow := slow_lines(status):
        lines += ["", *slow]
    warned = [printable(text) for text in status.get("warnings", ())]
    if warned:
        lines += ["", "warnings", *(f"  {text}" for text in warned[:10])]
    last = log_tail(info.path, tail, summary=False)
    return lines + (["", "log", *(f"  {line}" for line in last)] if last else [])


def saved(info: RunInfo) -> list[str]:
    """Return the newest checkpoints and the best one, which is marked."""
    kept = checkpoints(info.path)
    best, why = best_checkpoint(info)
    shown = [name for name in kept if name in kept[-4:] or name == best]
    return [f"{printable(name)} ({why})" if name == best else printable(name) for name in shown]


def best_checkpoint(info: RunInfo) -> tuple[str, str]:
    """Return the name of the best checkpoint, saved or not, and why it is: by the config, else by the main metric."""
    if best := run_files.text(info.path, "checkpoints/best").strip()[:200]:
        return best, "best"
    else:
        step = info.best.get(info.main_metric, (0.0, -1))[1]
        return f"step-{step:09}", f"best {printable(info.main_metric)}"


def checkpoints(folder: Path) -> list[str]:
    """Return the names of a run's checkpoints, oldest first."""
    native = sorted(path.name for path in (folder / "checkpoints").glob("step-*"))
    return native or [p.name for p in sorted(folder.glob("*.pth"), key=lambda p: (len(p.name), p.name))]


def log_file(folder: Path) -> Path | None:
    """Return the file with the lines that the run printed."""
    if (folder / "log.txt").is_file():
        return folder / "log.txt" if run_files.is_inside(folder, folder / "log.txt") else None
    found = [*sorted(folder.glob("*.log")), *sorted(folder.glob("*/*.log")), *sorted(folder.glob("log*.txt"))]
    inside = [path for path in found if path.is_file() and run_files.is_inside(folder, path)]
    return inside[-1] if inside else None


def log_tail(folder: Path, count: int, *, summary: bool = True) -> list[str]:
    """Return the last lines of the log, without control characters; only its end is read.

    Without ``summary``, the lines that a run ends with are left out, which are indented.
    """
    path = log_file(folder)
    if path is None or count <= 0:
        return []
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 400 * (count if summary else count + 30)))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line for line in text.splitlines() if summary or not _SUMMARY.match(line)]
    return [printable(line) for line in lines[-count:]]
