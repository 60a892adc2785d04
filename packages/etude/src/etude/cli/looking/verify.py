"""Check a run against its statement and against itself: files that have changed, weights of another run, a piece of
history that was cut out, another config, code or data. Ends with exit code 1 if anything is wrong.

  etude verify runs/digits/monday
  etude verify runs/digits/monday --replay 3         run 3 random pieces again, and compare their bits
  etude verify runs/digits/monday --key public.pem   check the signature, too
"""

from __future__ import annotations

import argparse

from etude.cli.flags import add_no_code
from etude.cli.looking.ranks import add_nproc, ended, launched
from etude.errors import UserError, printable
from etude.report.runs import find_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="a run folder, or a name that `etude runs` prints")
    parser.add_argument("--replay", type=int, default=0, metavar="N", help="run N random pieces again")
    add_nproc(parser)
    parser.add_argument("--key", metavar="FILE", default="", help="the public key of who signed the statement (PEM)")
    add_no_code(parser)


def run(args: argparse.Namespace) -> int:
    if args.replay < 0:
        raise UserError("--replay counts pieces: 0 or more")
    folder = find_run(args.run_folder)
    code = launched(args, folder) if args.replay else None
    if code is not None:
        return code
    from etude.dist.world import World
    from etude.ledger.statement import verify

    found = verify(folder, replays=args.replay, key=args.key)
    for line in found.right if World.from_environment().is_main else ():
        print(f"ok     {printable(line)}")
    for line in found.wrong if World.from_environment().is_main else ():
        print(f"wrong  {printable(line)}")
    return ended(args, 1 if found.wrong else 0)
