"""``etude fit-batch CONFIG``: finds the largest training batch that fits into memory."""

from __future__ import annotations

import argparse
from typing import Any

from etude.cli.train import positive


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "fit-batch",
        help="find the largest batch that fits into memory",
        description="Train two batches in a separate process, with larger and larger sizes, and print the largest "
        "one that fits. On a CPU the process may use --memory. Nothing is written.",
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML, TOML, JSON or Python")
    parser.add_argument("overrides", metavar="key=value", nargs="*", default=[], help="values to change")
    parser.add_argument("--memory", metavar="2G", default="", help="memory limit (default: all of this machine's)")
    parser.add_argument("--start", type=positive, default=16, metavar="N", help="first size to try (default 16)")
    parser.add_argument("--most", type=positive, default=65536, metavar="N", help="largest size to try")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from etude.sweep.fit_batch import Try, available_memory, fit_batch, parse_bytes, shown

    limit = parse_bytes(args.memory) if args.memory else available_memory()

    def say(one: Try) -> None:
        print(f"batch {one.batch_size:>6}  {shown(one.peak):>8}  {'fits' if one.fits else 'too large'}", flush=True)
        if one.samples is not None:
            print(f"the training data has {one.samples} samples: larger batches are the same", flush=True)

    largest = fit_batch(args.config, args.overrides, limit=limit, start=args.start, most=args.most, say=say)
    print(f"suggestion: data.train.batch_size={largest}")
    return 0
