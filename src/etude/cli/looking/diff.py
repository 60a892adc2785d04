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
    from etude.report.compare import KINDS, compare, recorded
    from etude.report.runs import find_run, name_of

    a, b = find_run(args.a), find_run(args.b)
    found = compare(a, b)
    if args.json:
        print(json.dumps([vars(one) for one in found], indent=1, default=str))
        return 0
    from etude.errors import printable

    print(f"A  {printable(name_of(a))}\nB  {printable(name_of(b))}")
    one, two = recorded(a), recorded(b)
    for kind in KINDS:
        here = [one for one in found if one.kind == kind]
        if here:
            print(f"\n{kind}")
            print("\n".join(f"  {one}" for one in here))
    same = [kind for kind in KINDS if one[kind] and two[kind] and all(other.kind != kind for other in found)]
    neither = [kind for kind in KINDS if not one[kind] and not two[kind]]
    print()
    if same:
        print(f"{'no difference' if not found else 'the same'}: {', '.join(same)}")
    if neither:
        print(f"not recorded in either run: {', '.join(neither)}")
    return 0
