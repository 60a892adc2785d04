"""Inspect, verify and convert checkpoints of Étude, mmcv, MMEngine, LiBai, detectron2, McQuic and
torch.distributed.checkpoint. Never executes anything in a file, unless you pass --trust.

  etude ckpt ls runs/digits/20261115-204250
  etude ckpt verify work_dirs/resnet                     compare every byte with its checksum; exit 7 if one differs
  etude ckpt diff step-000000460 epoch_20.pth            compare common parts; exit 0 if equal, 1 if not
  etude ckpt convert epoch_12.pth model.safetensors      and back: --to state_dict, mmcv, mmengine, etude
  etude ckpt convert step-000000460 out --to dcp         a folder for torch.distributed.checkpoint
  etude ckpt consolidate runs/digits/20261115-204250 -o whole     join the shards of several ranks
  etude ckpt average a.pth b.pth c.pth -o mean.safetensors

Exit 2: no checkpoint at that path. Exit 7: the checkpoint is damaged or refused.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from typing import Any

from etude.errors import ResumeError, printable
from etude.units import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    inner = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, dest="action")
    for name, (add, act, help_line) in ACTIONS.items():
        sub = inner.add_parser(name, help=help_line, description=f"{help_line[0].upper()}{help_line[1:]}.")
        add(sub)
        sub.set_defaults(run=run, act=act)


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _add_path(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", default="", help="a run, its checkpoints, or a URL (default: the newest run)"
    )


def _path(args: argparse.Namespace) -> str:
    from etude.checkpoint.tools.listing import newest_run
    from etude.report.runs import named_path

    return named_path(str(args.path)) or newest_run()


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trust", action="store_true", help="load files that contain code, and execute it")


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--key", default="", help="where the weights are, if not in the model: hook.Ema.average, ema_state_dict"
    )


def ls(args: argparse.Namespace) -> int:
    from etude.checkpoint.tools.listing import rows

    head = ("name", "step", "epoch", "size", "saved", "metrics")
    table = [head, *rows(_path(args))]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        print(printable("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()))
    return 0


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="a checkpoint, a .pth, .ckpt, .bin or .safetensors file, or a run (its newest)")
    parser.add_argument("--all", action="store_true", help="print every value, not only the first 200")
    _add_trust(parser)


def show(args: argparse.Namespace) -> int:
    from etude.checkpoint.tools import content
    from etude.checkpoint.tools.compare import describe, leaves

    found = list(leaves(content.read(args.path, trust=args.trust).state))
    shown = found if args.all else found[:200]
    width = min(60, max((len(path) for path, _ in shown), default=0))
    for path, value in shown:
        print(f"{printable(path):<{width}}  {describe(value)}")
    if len(shown) < len(found):
        print(f"… and {len(found) - len(shown)} more; --all prints them")
    return 0


def verify(args: argparse.Namespace) -> int:
    from etude.checkpoint.tools.listing import check

    results = check(_path(args), trust_owner=args.trust_owner)
    for one in results:
        print(f"{printable(one.name)}  {one.wrong or one.note or 'ok'}")
    return ResumeError.exit_code if any(one.wrong for one in results) else 0


def _add_verify(parser: argparse.ArgumentParser) -> None:
    _add_path(parser)
    parser.add_argument("--trust-owner", action="store_true", help="accept files owned by another user")


def _add_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("left", help="a checkpoint, a file of another system, or a run")
    parser.add_argument("right")
    parser.add_argument("--all", action="store_true", help="print every difference, not only the first 40")
    parser.add_argument("--strict", action="store_true", help="count parts that only one of them has as differences")
    _add_trust(parser)


def diff(args: argparse.Namespace) -> int:
    """Compare two checkpoints. Exit 0 if the common parts have the same bits, 1 if they differ, 2 or 7 if they
    cannot be compared."""
    from etude.checkpoint.tools import content
    from etude.checkpoint.tools.compare import compare

    left, right = (content.read(path, trust=args.trust) for path in (args.left, args.right))
    found = compare(left, right)
    shown = found.differences if args.all else found.differences[:40]
    for one in shown:
        print(f"{printable(one.path)}\n  - {one.left}\n  + {one.right}")
    if len(shown) < len(found.differences):
        print(f"… and {len(found.differences) - len(shown)} more; --all prints them")
    for path, parts in ((args.left, found.only_left), (args.right, found.only_right)):
        if parts:
            print(printable(f"only in {path}: {listed(parts)}"))
    if found.differences:
        print(counted(len(found.differences), "difference"))
    else:
        alone = found.only_left or found.only_right
        print(printable(f"the same in what both have: {listed(found.compared)}") if alone else "the same")
    return 1 if found.differences or (args.strict and (found.only_left or found.only_right)) else 0


def listed(names: list[str], most: int = 12) -> str:
    """Return ``a, b, c``, shortened if it is long."""
    more = f" … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a checkpoint, or a file of another system")
    parser.add_argument(
        "target", help="the file or, with --to dcp, folder to write; --to etude writes weights-N into it"
    )
    parser.add_argument(
        "--to", default="", metavar="LAYOUT",
        help="safetensors, state_dict, mmcv, mmengine, dcp or etude (default: by the ending .safetensors or .pth)",
    )  # fmt: skip
    parser.add_argument("--optimizer", action="store_true", help="include the optimizer's state if LAYOUT has one")
    _add_key(parser)
    _add_trust(parser)


def convert(args: argparse.Namespace) -> int:
    from etude.checkpoint.tools.convert import convert as work

    written, layout = work(
        args.source, args.target, layout=args.to, key=args.key, optimizer=args.optimizer, trust=args.trust
    )
    print(f"wrote {printable(written)} ({layout})")
    return 0


def _add_consolidate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="a sharded checkpoint of Étude, or a run (its newest)")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="folder to write the checkpoint into")


def consolidate(args: argparse.Namespace) -> int:
    from etude.checkpoint.tools.convert import consolidate as work

    print(f"wrote {printable(work(args.path, args.output))}")
    return 0


def _add_prune(parser: argparse.ArgumentParser) -> None:
    _add_path(parser)
    parser.add_argument("--keep", type=int, required=True, metavar="K", help="keep the last K")
    parser.add_argument("--best", default="", metavar="METRIC", help="also keep the best by this metric")
    parser.add_argument("--best-k", type=int, default=1, metavar="K", help="how many of the best to keep (default 1)")
    parser.add_argument("--mode", default="", choices=["", "min", "max"], help="which direction is better")
    parser.add_argument("--forever", type=int, default=0, metavar="N", help="also keep every N-th step")
    parser.add_argument("--aside", action="store_true", help="also delete what was set aside or is broken")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be deleted")


def prune(args: argparse.Namespace) -> int:
    from etude.checkpoint.retention import Retention
    from etude.checkpoint.storage.owner import hold
    from etude.checkpoint.tools.listing import prune as work
    from etude.checkpoint.tools.listing import store_folder
    from etude.metrics.direction import lower_is_better

    mode = args.mode or ("min" if lower_is_better(args.best) else "max")
    rule = Retention(
        last=args.keep, best=args.best_k if args.best else 0, metric=args.best, mode=mode, forever=args.forever
    )
    folder = store_folder(_path(args))
    inside = os.path.basename(folder) == "checkpoints" and "://" not in folder
    above = os.path.dirname(os.path.abspath(folder)) if inside else folder
    with nullcontext() if args.dry_run else hold(above, say=lambda line: print(line, file=sys.stderr)):
        done = work(folder, rule, aside=args.aside, dry=args.dry_run)
    for line in done.left:
        print(f"left alone {printable(line)}")
    for name in done.gone:
        print(f"{'would delete' if args.dry_run else 'deleted'} {printable(name)}")
    if not done.gone:
        print("nothing to delete")
    return 0


def _add_average(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", help="checkpoints or files, two or more")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=".safetensors or .pth")
    _add_key(parser)
    _add_trust(parser)


def average(args: argparse.Namespace) -> int:
    from etude.checkpoint.tools.convert import average as work

    count = work(args.sources, args.output, key=args.key, trust=args.trust)
    print(f"wrote {printable(args.output)}: {count} tensors averaged over {len(args.sources)}")
    return 0


#: Command → (flags, what to do, one line of help).
ACTIONS: dict[str, Any] = {
    "ls": (_add_path, ls, "list the checkpoints of a run"),
    "show": (_add_show, show, "print the content of a checkpoint"),
    "verify": (_add_verify, verify, "compare every byte with its checksum"),
    "diff": (_add_diff, diff, "compare two checkpoints bit by bit"),
    "convert": (_add_convert, convert, "convert to and from files of other systems"),
    "consolidate": (_add_consolidate, consolidate, "join the shards of several ranks"),
    "prune": (_add_prune, prune, "delete all but the last, the best, every N-th"),
    "average": (_add_average, average, "average the weights of several checkpoints"),
}
