"""Write runs into one HTML file that needs no network: curves with zoom and smoothing, times, groups, hooks,
plan, environment, warnings, images. Needs the extra [report]; --png needs [plot].
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="*",
        default=["runs"],
        help="run folders, or a sweep's folder; of a folder that holds runs (default: runs), the newest run",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: named after the run)")
    parser.add_argument("--png", metavar="FILE", help="draw a picture instead (.png, .svg, .pdf)")
    parser.add_argument(
        "--metric", "-m", action="append", default=[], metavar="NAME", help="with --png: a metric to draw"
    )
    parser.add_argument("--log", action="store_true", help="with --png: logarithmic scale")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from etude.report.runs import find_run, named_path
    from etude.sweep.page import is_sweep, sweep_page

    first = Path(named_path(args.runs[0]))
    if is_sweep(first) and not args.png:
        from etude.report.page import write_page

        target = Path(args.output or f"{first.resolve().parent.name}-sweep.html")
        write_page(sweep_page(first), target)
        print(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB)")
        return 0
    folders = list(dict.fromkeys(find_run(given) for given in args.runs))
    if args.png:
        from etude.report.picture import write_picture

        write_picture(folders, Path(args.png), metrics=args.metric, log=args.log)
        print(f"wrote {args.png}")
    if args.output or not args.png:
        from etude.report.page import name_for, write_report

        target = Path(args.output or name_for(folders))
        write_report(folders, target)
        print(f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB)")
    return 0
