"""Train CONFIG once per trial, with values drawn from what you give:

  etude sweep digits.yaml optim.lr=1e-4..1e-2:log data.train.batch_size=32,64 --trials 20 --jobs 2
  etude sweep digits.yaml optim.lr=0.1,0.01 model.dropout=0,0.1 --sampler grid

LOW..HIGH is a range (:log for a log scale), A,B are choices, and one value is the same in every trial. Trials that fall
behind the others are stopped early (--no-prune lets them finish). The same command again resumes a
sweep that was killed.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.cli.flags import add_no_code, positive
from etude.errors import UserError, printable

if TYPE_CHECKING:
    from etude.plan import Plan
    from etude.sweep.study import Result, Sweep

_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML, TOML, JSON or Python")
    parser.add_argument(
        "overrides", metavar="key=VALUES", nargs="*", default=[], help="values to search, or to set for all trials"
    )
    parser.add_argument(
        "--trials", type=positive, metavar="N", help="number of trials (default: the whole grid, else 20)"
    )
    parser.add_argument("--jobs", type=positive, default=1, metavar="N", help="trials to run in parallel (default 1)")
    parser.add_argument(
        "--sampler", choices=["tpe", "random", "grid"], help="default: grid if all values are lists, else tpe"
    )
    parser.add_argument(
        "--metric",
        default="",
        help="result to optimize (default: the one that the config keeps the best checkpoint by, else the loss)",
    )
    parser.add_argument(
        "--mode",
        choices=["min", "max"],
        default="",
        help="which direction is better (default: as the config says, or by the metric's name)",
    )
    parser.add_argument("--no-prune", action="store_true", help="run every trial to its end")
    parser.add_argument("--patience", type=positive, metavar="N", help="stop after N trials without improvement")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sampler")
    parser.add_argument("--folder", metavar="DIR", help="folder of the trials (default runs/NAME/sweep)")
    add_no_code(parser)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> int:
    from etude import dialects
    from etude.api import load_plan, require_sound
    from etude.metrics.direction import lower_is_better
    from etude.sweep.space import parse_space, samples
    from etude.sweep.study import Settings, Sweep

    space = parse_space(args.overrides)
    plan, _ = load_plan(args.config, space.fixed)
    best, mode = dialects.of(plan).best_result(plan)
    metric = args.metric or best
    if not dialects.of(plan).drives_itself:
        _require_metric(plan, metric)
    elif not metric:
        raise UserError("the config names no result to keep the best checkpoint by; say --metric NAME")
    for overrides in samples(space):  # a mistake ends the sweep before it has a folder
        require_sound(*load_plan(args.config, overrides))
    sampler = args.sampler or ("grid" if space.grid_size is not None else "tpe")
    if sampler == "grid" and space.grid_size is None:
        raise UserError("--sampler grid needs choices; a range such as 1e-4..1e-2 has no grid")
    settings = Settings(
        config=args.config,
        space=tuple(map(str, space.dimensions)),
        fixed=space.fixed,
        metric=metric,
        lower=lower_is_better(metric, args.mode or (mode if metric == best else "")),
        sampler=sampler,
        seed=args.seed,
    )
    folder = Path(args.folder) if args.folder else Path(plan.folder, plan.name, "sweep")
    say = (lambda text: None) if args.json else (lambda text: print(printable(text), flush=True))
    sweep = Sweep(settings, space, folder, prune=not args.no_prune, patience=args.patience, say=say)
    with _signals(sweep) as received:
        results = sweep.run(args.trials or space.grid_size or 20, args.jobs)
    print(json.dumps([asdict(one) for one in results], indent=1) if args.json else table(results, metric))
    if results and not args.json:
        print(f"plots: etude report {folder} -o sweep.html")
    if received:
        print(f"stopped by {received[0].name}; the same command resumes it")
        return _CODES[received[0]]
    return 0


def _require_metric(plan: Plan, metric: str) -> None:
    """Refuse a metric that no evaluation of the config records, where that is known."""
    from etude.errors.spelling import suggest
    from etude.inspection.check.results import is_recorded, result_names

    if "val" not in plan.data:
        raise UserError("a sweep compares validation results, and the config has no data.val")
    names, certain = result_names(plan)
    if certain and not is_recorded(metric, names):
        raise UserError(f"the runs record no {metric!r} on validation data; {suggest(metric, names - {'loss/'})}")


@contextmanager
def _signals(sweep: Sweep) -> Iterator[list[signal.Signals]]:
    """Stop the trials in order on Ctrl-C or SIGTERM."""
    received: list[signal.Signals] = []

    def stop(number: int, frame: Any) -> None:
        received.append(signal.Signals(number))
        sweep.stop()

    before = {number: signal.signal(number, stop) for number in _CODES}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def table(results: list[Result], metric: str) -> str:
    """Return the results as lines, best first, and the command that trains the best one again."""
    rows = [("trial", metric, "values", "run")]
    for one in results:
        value = f"{one.value:.4g}" if one.value is not None else one.state
        rows.append((str(one.number), value, "  ".join(one.overrides), one.folder))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in rows
    )
