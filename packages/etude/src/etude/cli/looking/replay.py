"""Run one step of a run again, from the checkpoint before it, and show what happened in it: samples, losses, and the
outputs, gradients and updates of each module. Each step on the way is compared with the ledger. Nothing is written
into the run. Steps count from one, as in log lines.

  etude replay runs/digits --step 120
  etude replay runs/digits --until-spike            the largest jump of the loss, or the first one that is not finite
  etude replay runs/digits --steps 100..120 --save step.pt
  etude replay runs/digits --step 120 --nproc 2     a run of two processes: each replays its share
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from etude.cli.flags import add_no_code
from etude.cli.looking.ranks import add_nproc, ended, launched
from etude.errors import UserError, printable
from etude.report.runs import find_run

if TYPE_CHECKING:
    from etude.ledger.anatomy import ModuleNote
    from etude.ledger.replay import Replayed

_MOST_SAMPLES, _MOST_MODULES = 12, 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", metavar="RUN", help="a run folder, or a name that `etude runs` prints")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--step", type=int, metavar="N", help="the step to run again")
    which.add_argument("--steps", metavar="A..B", help="show the losses of steps A to B, and step B in full")
    which.add_argument("--until-spike", action="store_true", help="find the worst step by itself")
    parser.add_argument(
        "--save", metavar="FILE", help="write batch, outputs and gradients of the step: torch.load reads it"
    )
    add_nproc(parser)
    parser.add_argument("--pdb", action="store_true", help="stop there in the debugger, with run, batch and outputs")
    add_no_code(parser)


def run(args: argparse.Namespace) -> int:
    first, last = _range(args.steps) if args.steps else (None, args.step)
    code = launched(args, find_run(args.run_folder))
    if code is not None:
        return code
    from etude.ledger.replay import replay

    found = replay(args.run_folder, last, until_spike=args.until_spike, inspect=_debug if args.pdb else None)
    if found.rank == 0:
        _show(args, found, first, last)
    return ended(args, 0 if found.as_recorded else 1)


def _show(args: argparse.Namespace, found: Replayed, first: int | None, last: int) -> None:
    if first is not None:
        for line in found.history[first - last - 1 :]:
            print(line)
        print()
    print("\n".join(shown(found)))
    if args.save:
        try:
            found.save(args.save)
        except (OSError, RuntimeError) as error:
            raise UserError(f"--save {args.save}: cannot be written: {error}") from error
        print(f"\nwritten to {args.save}")


def _range(text: str) -> tuple[int, int]:
    first, dots, last = text.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise UserError(f"--steps {text}: write two steps, as 100..120")
    return int(first), int(last)


def _debug(found: Replayed) -> None:
    run, batch, outputs = found.run, found.batch, found.outputs  # noqa: F841 - what the debugger shows
    breakpoint()


def shown(found: Replayed) -> list[str]:
    """Return the lines that describe a replayed step."""
    from etude.units import counted

    lines = [f"{printable(str(found.folder))}, step {found.step} of {found.steps}, epoch {found.epoch + 1}"]
    start = found.checkpoint or "the beginning of the run"
    if found.different is None:
        verdict = f"{counted(found.repeated, 'step')} run again from {start}: bitwise as in the ledger"
    else:
        step, what = found.different
        verdict = f"run again from {start}: step {step} came out differently: {what}"
    lines.append(f"  replay   {verdict}")
    for rank, (different, ids) in enumerate(found.ranks):
        said = "bitwise as in its ledger" if different is None else f"step {different[0]} differs: {different[1]}"
        lines.append(
            f"  rank {rank}   {said}; {len(ids)} samples, from {ids[:3]}" if ids else f"  rank {rank}   {said}"
        )
    if found.changed_code:
        lines.append(
            f"  code     {', '.join(map(printable, found.changed_code))} changed since; the text of the run was used"
        )
    if found.loss is not None:
        lines.append(f"  loss     {found.loss:.9g}")
    lines += _samples(found)
    lines += [f"  batch    {line}" for line in described(found.batch)]
    if found.first_bad is not None:
        name, came = found.first_bad
        lines.append(f"  module   {name} was the first with a value that is not finite; its inputs were {came}")
    return [*lines, "", *_table(found.modules)] if found.modules else lines


def _samples(found: Replayed) -> list[str]:
    if not found.ids:
        return ["  samples  unknown: the data has no indices"]
    order = range(len(found.ids))
    if found.sample_losses is not None and len(found.sample_losses) == len(found.ids):
        losses = found.sample_losses
        order = sorted(order, key=lambda at: -losses[at])  # type: ignore[assignment]
        rows = [f"{losses[at]:<10.4g} sample {found.ids[at]}  {printable(found.origins[at])}" for at in order]
        head = f"  samples  {len(found.ids)}, largest losses first:"
    else:
        rows = [f"sample {found.ids[at]}  {printable(found.origins[at])}" for at in order]
        head = f"  samples  {len(found.ids)}:"
    more = [f"             … and {len(rows) - _MOST_SAMPLES} more"] if len(rows) > _MOST_SAMPLES else []
    return [head, *(f"             {row}".rstrip() for row in rows[:_MOST_SAMPLES]), *more]


def described(batch: Any, name: str = "") -> list[str]:
    """Return a line for each tensor in a batch: shape, type, and range of values."""
    if hasattr(batch, "detach"):
        shape, kind = "×".join(map(str, batch.shape)) or "one number", str(batch.dtype).removeprefix("torch.")
        values = batch.detach().double() if batch.numel() else None
        extent = "" if values is None else f", {values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"
        return [f"{name or 'tensor'}: {shape} {kind}{extent}"]
    if isinstance(batch, dict):
        return [line for key, item in batch.items() for line in described(item, f"{name}.{key}" if name else str(key))]
    if isinstance(batch, list | tuple):
        return [line for at, item in enumerate(batch) for line in described(item, f"{name}[{at}]")]
    return [f"{name or 'value'}: {printable(str(batch))[:80]}"]


def _table(modules: list[ModuleNote]) -> list[str]:
    """Return a row for each module, those with the largest gradients first if there are too many."""
    rows = modules
    if len(rows) > _MOST_MODULES:
        rows = sorted(rows, key=lambda note: -(note.gradient_norm or 0.0))[:_MOST_MODULES]
    width = max(len(note.name) for note in rows)
    head = f"  {'module':<{width}}  {'kind':<18} {'output max':>11} {'gradient':>11} {'update':>11} {'weights':>11}"
    lines = [
        f"  {note.name:<{width}}  {note.kind[:18]:<18} {_cell(note.largest_output)} {_cell(note.gradient_norm)} "
        f"{_cell(note.update_norm)} {_cell(note.weight_norm)}"
        for note in rows
    ]
    left = len(modules) - len(rows)
    return [head, *lines, *([f"  … and {left} modules with smaller gradients"] if left else [])]


def _cell(value: float | None) -> str:
    return f"{'' if value is None else f'{value:.4g}':>11}"
