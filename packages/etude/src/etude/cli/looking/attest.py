"""Write a statement about a run into its folder: config, code, data, packages, ledger and checkpoints, chained by
hashes. `etude verify` checks it. With a key the statement is signed.

  etude attest runs/digits/monday
  etude attest runs/digits/monday --key key.pem      openssl genpkey -algorithm ed25519 -out key.pem
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="a run folder, or a name that `etude runs` prints")
    parser.add_argument("--key", metavar="FILE", default="", help="sign with this Ed25519 key (PEM)")


def run(args: argparse.Namespace) -> int:
    from etude.errors import printable
    from etude.ledger.statement import attest
    from etude.report.runs import find_run

    print(f"written to {printable(str(attest(find_run(args.run_folder), args.key)))}")
    return 0
