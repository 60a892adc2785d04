"""Load the model of RUN and write its prediction for every sample of a split, of a folder of images or of a file
in the format of the training data. The suffix of FILE sets the output format.
"""

from __future__ import annotations

import argparse

from etude.cli.flags import add_best, add_no_code
from etude.units import either


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "data", metavar="DATA", nargs="?", help="a split (val), a folder of images, or a file like the training data"
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="FILE",
        help="out.csv, out.jsonl, out.npz or out.parquet; for runs of other systems out.jsonl, or out.pkl as they do",
    )
    parser.add_argument(
        "--with", dest="beside", default="", metavar="WHAT", help="also write targets, inputs or targets,inputs"
    )
    parser.add_argument("--split", default="", metavar="NAME", help="a split of the data (default: test, else val)")
    add_weights(parser)
    parser.add_argument("--batch-size", type=int, metavar="N", help="batch size (default: the config's)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1 … (default: the best there is)")


def add_weights(parser: argparse.ArgumentParser) -> None:
    """Add the flags that choose the weights of a run, and the switch against its code."""
    add_no_code(parser)
    add_best(parser)
    parser.add_argument(
        "--ema",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="use the weights averaged by EMA or SWA, or not (default: the weights the run was evaluated with)",
    )


def run(args: argparse.Namespace) -> int:
    from etude.inference.predict import formats_of, predict_run
    from etude.report.runs import named_path

    formats = tuple(formats_of(named_path(args.folder)))
    if not args.out.endswith(formats):
        from etude.errors import UserError

        raise UserError(f"{args.out}: predictions are written as {either(formats)}")
    found = predict_run(
        named_path(args.folder),
        args.data,
        split=args.split,
        best=args.best,
        ema=args.ema,
        batch_size=args.batch_size,
        device=args.device,
        beside=[word for word in args.beside.split(",") if word],
    )
    found.write(args.out)
    print(f"{len(found.names)} samples  {args.out}")
    return 0
