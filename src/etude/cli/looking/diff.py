"""``etude diff A B``: why two runs differ."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "diff",
        help="explain why two runs differ",
        description="Compare two runs: the keys of their plans, code, data, environment, and where their metrics part.",
    )
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from etude.report.compare import compare
    from etude.report.runs import find_run, name_of

    a, b = find_run(args.a), find_run(args.b)
    found = compare(a, b)
    if args.json:
        print(json.dumps([vars(one) for one in found], indent=1, default=str))
        return 0
    from etude.errors import printable

    print(f"A  {printable(name_of(a))}\nB  {printable(name_of(b))}")
    for kind in ("plan", "code", "data", "environment", "metric"):
        here = [one for one in found if one.kind == kind]
        if here:
            print(f"\n{kind}")
            print("\n".join(f"  {one}" for one in here))
    if not found:
        print("\nno difference: plan, code, data, environment and metrics are the same")
    return 0
