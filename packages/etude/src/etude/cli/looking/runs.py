"""List the runs below DIR, including those of mmcv 1.x, MMEngine and LiBai. Tag, archive or delete those that are
listed:

etude runs --tagged good                         only runs with this tag
etude runs runs/digits/20261116-101500 --tag good --note "more dropout"
etude runs runs/digits --state failed --delete   asks first; never deletes what a process trains in
etude runs runs/digits --mean                    mean and deviation over runs that differ by seed or fold only
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.report.notes import Notes
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
    parser.add_argument("--mean", action="store_true", help="one line for runs that differ by seed or fold only")
    parser.add_argument("--tagged", action="append", default=[], metavar="TAG", help="only runs with this tag")
    parser.add_argument("--archived", action="store_true", help="list archived runs, too")
    doing = parser.add_argument_group("what to do with the runs that are listed")
    doing.add_argument("--tag", action="append", default=[], metavar="TAG", help="give them a tag")
    doing.add_argument("--untag", action="append", default=[], metavar="TAG", help="take a tag away")
    doing.add_argument("--note", metavar="TEXT", help="write a note about them; an empty one removes it")
    doing.add_argument("--archive", action=argparse.BooleanOptionalAction, default=None, help="leave them out of lists")
    doing.add_argument("--delete", action="store_true", help="delete their folders, with all checkpoints")
    doing.add_argument("--yes", action="store_true", help="delete without asking")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from etude.errors import UserError, printable
    from etude.report.means import mean_table
    from etude.report.notes import read_notes, write_notes
    from etude.report.query import matching
    from etude.report.runs import changed_keys, find_runs, metric_of, sort_runs, summarise, unusual_keys

    _check_states(args.state)
    root = Path(args.folder)
    folders = find_runs(root)
    if not folders:
        raise UserError(f"{printable(str(root))} has no runs; `etude train CONFIG` makes one in runs/")
    said = {folder: read_notes(folder) for folder in folders}
    folders = [one for one in folders if one == root or _is_wanted(said[one], args)]
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
    if args.delete:
        return _delete(kept, sure=args.yes)
    for one in kept if args.tag or args.untag or args.note is not None or args.archive is not None else ():
        said[one.path] = _noted(said[one.path], args)
        write_notes(one.path, said[one.path])
    if args.mean:
        print("\n".join(mean_table(kept)))
    elif args.json:
        print(json.dumps([_record(one, changed[one.path], said[one.path]) for one in kept], indent=1, default=str))
    elif args.csv:
        _print_csv(kept, changed)
    else:
        _print_table(kept, unusual_keys(changed), len(runs), said)
    return 0


def _is_wanted(said: Notes, args: argparse.Namespace) -> bool:
    shown = args.archived or args.archive is not None or not said.archived
    return shown and set(args.tagged) <= set(said.tags)


def _noted(said: Notes, args: argparse.Namespace) -> Notes:
    """Return the notes of a run with what the flags change."""
    from etude.report.notes import Notes

    tags = tuple(dict.fromkeys(tag for tag in (*said.tags, *args.tag) if tag not in args.untag))
    note = said.note if args.note is None else args.note
    return Notes(tags, note, said.archived if args.archive is None else args.archive)


def _delete(runs: list[RunInfo], *, sure: bool) -> int:
    """Delete runs, after asking. One that a process trains in stays, and is named."""
    from etude.errors import UserError, printable
    from etude.report.notes import delete_run

    for one in runs:
        print(printable(str(one.path)))
    if not sure:
        if not sys.stdin.isatty():
            raise UserError(f"this would delete {len(runs)} runs; pass --yes to do it")
        if input(f"delete these {len(runs)} runs? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    held = 0
    for one in runs:
        try:
            delete_run(one.path)
        except UserError as error:
            held += 1
            print(f"etude: {error}", file=sys.stderr)
    print(f"deleted {len(runs) - held} of {len(runs)}")
    return 2 if held else 0


def _check_states(asked: list[str]) -> None:
    from etude.errors import UserError
    from etude.errors.spelling import suggest
    from etude.report.status import STATES

    for state in asked:
        if state not in STATES:
            raise UserError(f"--state: there is no state {state!r}; {suggest(state, STATES)}")


def _record(one: RunInfo, changed: dict[str, Any], said: Notes) -> dict[str, Any]:
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
        "tags": list(said.tags),
        "note": said.note,
        "archived": said.archived,
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


def _print_table(runs: list[RunInfo], unusual: dict[Any, dict[str, Any]], count: int, said: dict[Any, Notes]) -> None:
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
                printable(" ".join(filter(None, [_remarks(said[one.path]), _changes(unusual[one.path])]))) or "–",
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


def _remarks(said: Notes) -> str:
    """Return tags and note in a line: ``[good] more dropout``."""
    tags = "".join(f"[{tag}]" for tag in (*said.tags, *(["archived"] if said.archived else [])))
    return " ".join(filter(None, [tags, said.note]))


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _changes(changed: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in changed.items())
