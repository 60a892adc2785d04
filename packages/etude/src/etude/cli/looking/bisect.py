"""Find the first step at which two runs part, from their ledgers, and the first operator in it whose results differ.
That step is run again in both runs. The cause is named: other samples, weights, settings, data, code, or a kernel.

  etude bisect runs/digits/monday runs/digits/tuesday
  etude bisect A B --python-a old/bin/python --python-b new/bin/python       two environments
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etude.ledger.bisect import Parting

from etude.cli.flags import add_no_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help="a run folder, or a name that `etude runs` prints")
    parser.add_argument("b", metavar="B", help="the run to compare it with")
    parser.add_argument("--python-a", metavar="PYTHON", default="", help="the interpreter to replay A with")
    parser.add_argument("--python-b", metavar="PYTHON", default="", help="the interpreter to replay B with")
    parser.add_argument("--no-replay", action="store_true", help="only compare the ledgers")
    add_no_code(parser)


def run(args: argparse.Namespace) -> int:
    from etude.ledger.bisect import bisect
    from etude.report.runs import find_run

    a, b = find_run(args.a), find_run(args.b)
    found = bisect(a, b, python_a=args.python_a, python_b=args.python_b, look=not args.no_replay)
    print("\n".join(shown(found)))
    return 0 if found.step is None else 1


def shown(found: Parting) -> list[str]:
    """Return the lines that describe where two runs part."""
    from etude.errors import printable
    from etude.units import counted

    if found.step is None:
        return [f"the same: all {counted(found.common, 'common step')} are bitwise identical"]
    lines = [f"step {found.step} is the first that differs: {found.what}"]
    if found.traced not in (None, found.step):
        lines.append(f"the update of step {found.traced} left different weights")
    if found.cause:
        lines.append(f"cause     {printable(found.cause)}")
    if found.operator is not None:
        name, module, position = found.operator
        inside = f" in {module}" if module else ""
        lines.append(f"operator  {printable(name)}{printable(inside)} (number {position + 1} of step {found.traced})")
    lines += [f"          {printable(line)}" for line in found.details]
    if found.recorded:
        lines += ["", "what else differs:"]
        lines += [f"  {one.kind:<12} {line}" for one in found.recorded for line in str(one).splitlines()[:40]]
    return lines
