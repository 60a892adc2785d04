"""Train a few steps with a learning rate that grows from --from to --to, draw the loss over it, and name the
rate at which it falls fastest. Nothing is written unless you ask for a picture.
"""

from __future__ import annotations

import argparse
import math

from etude.cli.flags import add_config, add_no_code, positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_no_code(parser)
    parser.add_argument("--from", dest="low", type=float, default=1e-6, metavar="LR", help="first rate (default 1e-6)")
    parser.add_argument("--to", dest="high", type=float, default=1.0, metavar="LR", help="last rate (default 1)")
    parser.add_argument("--steps", type=positive, default=100, help="number of steps (default 100)")
    parser.add_argument("--plot", metavar="FILE", help="save the curve as PNG, SVG or PDF")


def run(args: argparse.Namespace) -> int:
    from etude.api import load_plan, require_sound
    from etude.preview.draw import save_plot, text_plot
    from etude.sweep.lr_find import lr_find

    plan, _ = load_plan(args.config, args.overrides)
    found = lr_find(require_sound(plan), low=args.low, high=args.high, steps=args.steps)
    curve = [(math.log10(rate), loss) for rate, loss in zip(found.rates, found.losses, strict=True)]
    print("\n".join(text_plot(curve)))
    print(f"{'':>9} {f'{found.rates[0]:.0e}':<32}{f'{found.rates[-1]:.0e}':>32}  learning rate (log scale)")
    print(f"suggestion: optim.lr={found.suggestion:.1e}")
    if args.plot:
        save_plot({"loss over log10(lr)": curve}, args.plot, title=f"lr-find {args.config}")
    return 0
