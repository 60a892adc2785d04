"""Train two batches in a separate process, with larger and larger sizes, and print the largest one that fits. On
a CPU the process may use --memory. Nothing is written.
"""

from __future__ import annotations

import argparse

from etude.cli.flags import add_config, add_no_code, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_no_code(parser)
    parser.add_argument("--memory", metavar="2G", default="", help="memory limit (default: all of this machine's)")
    parser.add_argument("--start", type=positive, default=16, metavar="N", help="first size to try (default 16)")
    parser.add_argument("--most", type=positive, default=65536, metavar="N", help="largest size to try")


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
