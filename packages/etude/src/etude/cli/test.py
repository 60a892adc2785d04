"""Build the model of CONFIG, load the weights of CHECKPOINT, evaluate on the test data (else on the validation
data) and print the results, one per line. Trains and saves nothing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from etude.cli.flags import add_best, add_cfg_options, add_no_code
from etude.errors import UserError, printable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="a config, or a run folder (uses its config)")
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", help="a checkpoint, a weights file, or a run (its newest)"
    )
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="values to change")
    add_best(parser)
    parser.add_argument("--split", default="", metavar="NAME", help="data to evaluate on (default: test, else val)")
    parser.add_argument("--out", metavar="FILE", help="write the results to FILE as JSON")
    parser.add_argument("--folder", "--work-dir", metavar="DIR", help="folder for the logs of other dialects")
    add_cfg_options(parser)
    parser.add_argument(
        "--launcher", default="none", choices=["none", "pytorch", "slurm", "mpi"], help="who started the processes"
    )
    parser.add_argument("--local_rank", "--local-rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--no-check", action="store_true", help="evaluate although `etude check` finds mistakes")
    add_no_code(parser)
    parser.add_argument("--trust", action="store_true", help="load a file that contains code, and execute it")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing but the results")
    parser.add_argument("--dialect", default="", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from etude import compat
    from etude.api import measure
    from etude.building.options import Options
    from etude.report.runs import named_path

    args.config = named_path(args.config)
    checkpoint = args.checkpoint
    if checkpoint is not None and "=" in checkpoint and not Path(checkpoint).exists():
        args.overrides.insert(0, checkpoint)
        checkpoint = None
    checkpoint = named_path(checkpoint or "") or None
    if not Path(args.config).exists():
        raise UserError(f"{printable(args.config)}: no such run or config; `etude runs` lists the runs below runs/")
    if checkpoint is None and not Path(args.config).is_dir():
        raise UserError("name a checkpoint: etude test CONFIG CHECKPOINT, or etude test RUN")
    compat.install()
    options = Options(
        folder=Path(args.folder) if args.folder else None, quiet=args.quiet, trust=args.trust, extras=vars(args)
    )
    results = measure(
        args.config,
        checkpoint or args.config,
        args.overrides,
        split=args.split,
        best=args.best,
        dialect=args.dialect,
        options=options,
    )
    for name, value in results.items():
        print(f"{printable(name)}  {value:.6g}")
    if args.out:
        Path(args.out).write_text(json.dumps(results) + "\n", encoding="utf-8")
    return 0
