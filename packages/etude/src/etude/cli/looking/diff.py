"""Compare two runs: plans, code, data, environment, and the step at which their metrics diverge."""

from __future__ import annotations

import argparse
import json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a run folder, or a name that `etude runs` prints")
    parser.add_argument("b", metavar="B", help="the run to compare it with")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from etude.report.compare import KINDS, examine
    from etude.report.runs import find_run, name_of

    a, b = find_run(args.a), find_run(args.b)
    result = examine(a, b)
    found = result.found
    if args.json:
        print(json.dumps([vars(one) for one in found], indent=1, default=str))
        return 0
    from etude.errors import printable

    print(f"A  {printable(name_of(a))}\nB  {printable(name_of(b))}")
    for kind in KINDS:
        here = [one for one in found if one.kind == kind]
        if here:
            print(f"\n{kind}")
            print("\n".join(f"  {one}" for one in here))
    print()
    if result.same:
        print(f"{'the same' if found else 'no difference'}: {', '.join(result.same)}")
    if result.neither:
        print(f"not recorded in either run: {', '.join(result.neither)}")
    if any(one.kind == "metric" for one in found) and all((side / "ledger.bin").is_file() for side in (a, b)):
        print(f"`etude bisect {args.a} {args.b}` finds the first step and operator that differ")
    if result.sampled:
        print("the records are large: only evenly spaced samples of them were compared")
    return 0
