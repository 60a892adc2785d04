"""List the runs below DIR, including those of mmcv 1.x, MMEngine and LiBai. Changes nothing."""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.report.runs import RunInfo

_SORTS = ("began", "name", "state", "step", "seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="runs", help="folder to search (default: runs)")
    parser.add_argument(
        "--sort", default="began", metavar="KEY", help=f"{', '.join(_SORTS)}, a metric, or a key of the plan: optim.lr"
    )
    parser.add_argument("--reverse", action="store_true", help="reverse the order")
    parser.add_argument("--state", action="append", default=[], metavar="S", help="only runs in state S")
    parser.add_argument(
        "--filter", default="", metavar="TERMS",
        help="only runs that fulfil all of: words or patterns (digits*) of name, state or differing keys, and "
        "'accuracy>0.95', 'optim.lr<=1e-3', 'model.type=MLP', -word",
    )  # fmt: skip
    parser.add_argument("--limit", type=int, metavar="N", help="at most N runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", action="store_true", help="print CSV")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from etude.errors import UserError, printable
    from etude.report.query import matching
    from etude.report.runs import changed_keys, find_runs, metric_of, sort_runs, summarise, unusual_keys

    _check_states(args.state)
    root = Path(args.folder)
    folders = find_runs(root)
    if not folders:
        raise UserError(f"{printable(str(root))} has no runs; `etude train CONFIG` makes one in runs/")
    runs = [summarise(folder, root) for folder in folders]
    changed = changed_keys(runs)
    keys = {key for one in runs for key in one.plan}
    if args.sort not in (*_SORTS, *keys) and all(metric_of(one, args.sort) is None for one in runs):
        from etude.errors.spelling import suggest

        known = sorted({name for one in runs for name in one.best})
        different = sorted({key for own in changed.values() for key in own})
        hint = suggest(args.sort, [*known, *_SORTS, *different])
        raise UserError(f"no run has a metric or key {args.sort!r}; {hint}")
    listed = [one for one in matching(args.filter, runs, changed) if not args.state or one.state in args.state]
    kept = sort_runs(listed, args.sort, reverse=args.reverse)[: args.limit]
    if args.json:
        print(json.dumps([_record(one, changed[one.path]) for one in kept], indent=1, default=str))
    elif args.csv:
        _print_csv(kept, changed)
    else:
        _print_table(kept, unusual_keys(changed), len(runs))
    return 0


def _check_states(asked: list[str]) -> None:
    from etude.errors import UserError
    from etude.errors.spelling import suggest
    from etude.report.status import STATES

    for state in asked:
        if state not in STATES:
            raise UserError(f"--state: there is no state {state!r}; {suggest(state, STATES)}")


def _record(one: RunInfo, changed: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": one.name,
        "path": str(one.path),
        "state": one.state,
        "dialect": one.dialect,
        "step": one.step,
        "total": one.total,
        "began": one.began,
        "seconds": one.seconds,
        "best": {name: {"value": value, "step": step} for name, (value, step) in one.best.items()},
        "last": {name: value if value - value == 0 else str(value) for name, value in one.last.items()},
        "differs": changed,
    }


def _print_csv(runs: list[RunInfo], changed: dict[Any, dict[str, Any]]) -> None:
    metrics = list(dict.fromkeys(name for one in runs for name in one.best))
    keys = list(dict.fromkeys(key for one in runs for key in changed[one.path]))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["name", "state", "step", "began", "seconds", *(f"best {m}" for m in metrics), *keys])
    for one in runs:
        best = [one.best[m][0] if m in one.best else "" for m in metrics]
        own = [changed[one.path].get(key, "") for key in keys]
        writer.writerow([one.name, one.state, one.step, one.began or "", one.seconds or "", *best, *own])


def _print_table(runs: list[RunInfo], unusual: dict[Any, dict[str, Any]], count: int) -> None:
    from etude.errors import printable
    from etude.units import duration

    rows = [("run", "state", "step", "time", "began", "best", "differs")]
    for one in runs:
        whole = f"/{one.total}" if one.total else ""
        value = one.best.get(one.main_metric)
        rows.append(
            (
                printable(one.name),
                one.state,
                f"{one.step}{whole}",
                duration(one.seconds) if one.seconds else "–",
                time.strftime("%m-%d %H:%M", time.localtime(one.began)) if one.began else "–",
                f"{printable(one.main_metric)} {value[0]:.4g}" if value else "–",
                printable(_changes(unusual[one.path])) or "–",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    signs = "<<>><<"  # numbers to the right
    room = max(30, shutil.get_terminal_size((200, 24)).columns - sum(widths) - 12)
    for row in rows:
        cells = zip(row[:6], signs, widths, strict=True)
        print("  ".join(f"{cell:{sign}{width}}" for cell, sign, width in cells), _cut(row[6], room), sep="  ")
    if len(runs) < count:
        print(f"({len(runs)} of {count} runs)")


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _changes(changed: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in changed.items())
