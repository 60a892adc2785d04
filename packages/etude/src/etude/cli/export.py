"""Load the model of RUN and write it by torch.export (.pt2), as ONNX (.onnx), or as weights (.safetensors). The
program takes any batch size. It is compared with the model before the file is kept.
"""

from __future__ import annotations

import argparse

from etude.cli.predict import add_weights


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="the folder of a run")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="model.pt2, model.onnx or model.safetensors")
    parser.add_argument("--shape", metavar="3,224,224", help="shape of one input (default: from the run's data)")
    add_weights(parser)


def run(args: argparse.Namespace) -> int:
    from etude.errors import UserError
    from etude.inference.export import export
    from etude.report.runs import named_path

    try:
        shape = [int(number) for number in args.shape.split(",")] if args.shape else None
    except ValueError:
        raise UserError(f"--shape is written as 3,224,224, not {args.shape!r}") from None
    said = export(named_path(args.folder), args.out, best=args.best, ema=args.ema, shape=shape)
    print(f"{args.out}  {said}")
    return 0
