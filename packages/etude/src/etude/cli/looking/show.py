"""Show a run: its curves, where its time went, checkpoints, warnings and the last lines of its log. RUN is a run
folder; of a folder that holds runs, the newest run is shown.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folder", metavar="RUN", nargs="?", default="runs", help="a run (default: the newest below runs)"
    )
    parser.add_argument(
        "--metric", "-m", action="append", default=[], metavar="NAME", help="metric to draw, or a pattern: val/*"
    )
    parser.add_argument("--log", action="store_true", help="logarithmic scale")
    parser.add_argument("--tail", type=int, default=5, metavar="N", help="log lines to print (default 5)")
    parser.add_argument("--follow", "-f", action="store_true", help="keep updating until the run ends")
    parser.add_argument("--time", action="store_true", help="where the time went, over all resumes; and the goodput")
    parser.add_argument("--list", action="store_true", help="only list the metrics")


def run(args: argparse.Namespace) -> int:
    from etude.cli.escaped import CLEAR
    from etude.report.records import Records
    from etude.report.runs import find_run, summarise
    from etude.report.text import chosen, show

    folder = find_run(args.run_folder)
    if args.time:
        from etude.report.lives import shown

        print("\n".join(shown(folder)))
        return 0
    records = Records(folder)
    records.update()
    if args.list:
        print("\n".join(records.curves))
        return 0
    while True:
        info = summarise(folder, records=records)
        names = chosen(records, args.metric if records.curves else [])
        page = show(info, records, names, log=args.log, tail=args.tail)
        if not records.curves:
            page.append("nothing is recorded yet")
        if args.follow and sys.stdout.isatty():
            print(CLEAR, end="")
        print("\n".join(page), flush=True)
        if not args.follow or info.state != "running":
            return 0
        _wait(records, info.path)


def _wait(records: Any, folder: Any) -> None:
    """Return when there are new records or when the run is over."""
    from etude.config import run_files
    from etude.report.status import state_of

    while not records.update() and state_of(folder, run_files.status(folder)) == "running":
        time.sleep(0.5)
    print()
