"""Trains one config several times: with other seeds, or on other folds of its data. Each is an ordinary run."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.errors import ConfigError, UserError, printable

if TYPE_CHECKING:
    from etude.plan import Plan

_OWN_FLAGS = ("--seeds", "--folds", "--folder", "--work-dir")


def train_repeatedly(args: argparse.Namespace) -> int:
    """Train one run after the other, and print mean and deviation of their results."""
    from etude.api import load_plan, require_sound
    from etude.report.means import mean_table
    from etude.report.runs import find_runs, summarise

    _refuse(args)
    plan, tree = load_plan(args.config, args.overrides, dialect=args.dialect, options=vars(args))
    if plan.dialect != "native":
        raise UserError(f"--seeds and --folds are for native configs; this one is of {plan.dialect}")
    runs = dict(_folds(plan, tree.values, args.folds) if args.folds else _seeds(plan, args.seeds))
    for changes in runs.values():  # a mistake ends all of it before the first run
        require_sound(*load_plan(args.config, [*args.overrides, *changes]))
    kind = "folds" if args.folds else "seeds"
    root = Path(args.folder or Path(plan.folder, plan.name, f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"))
    for number, (name, changes) in enumerate(runs.items(), 1):
        print(f"etude: {name} ({number} of {len(runs)})", file=sys.stderr)
        words = [*_without(args.typed, _OWN_FLAGS), *changes, "--folder", str(root / name)]
        code = subprocess.call([sys.executable, "-m", "etude", *words])
        if code:
            again = f"the same command with --folder {printable(str(root))} --resume continues"
            print(f"etude: {name} ended with exit code {code}; {again}", file=sys.stderr)
            return code if code > 0 else 128 - code
    print("\n".join(mean_table([summarise(folder, root) for folder in find_runs(root)])))
    return 0


def _refuse(args: argparse.Namespace) -> None:
    for flag in ("seeds", "folds"):
        count = getattr(args, flag)
        if count is not None and count < 2:
            raise UserError(f"--{flag} {count}: one run needs no --{flag}")
    if args.seeds and args.folds:
        raise UserError("--seeds and --folds: repeat one of them at a time")
    if args.seeds and args.seed is not None:
        raise UserError("--seeds counts up from train.seed; leave --seed out, or write train.seed=…")
    if args.resume and args.resume is not None:
        raise UserError("--resume PATH is of one run; with --seeds and --folds pass --folder and --resume")
    if args.resume is not None and args.folder is None:
        raise UserError("--resume: which runs? Pass their --folder, as the first start has printed it")


def _seeds(plan: Plan, count: int) -> Iterator[tuple[str, list[str]]]:
    for seed in range(plan.train.seed, plan.train.seed + count):
        yield f"seed-{seed}", [f"train.seed={seed}"]


def _folds(plan: Plan, values: Mapping[str, Any], count: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the changes for each fold. Held-out samples are transformed as validation data, or not at all."""
    data = values["data"]
    train = _mapping(data["train"]["dataset"])
    val = _mapping(data["val"]["dataset"]) if "val" in data else {}
    held = {key: value for key, value in train.items() if key != "transform"}
    if train["type"] == "Transformed":
        held = {**train, "transform": val["transform"]} if val.get("type") == "Transformed" else train["dataset"]
    elif val.get("type") == train["type"] and "transform" in val:
        held["transform"] = val["transform"]
    if train["type"] == "Fold":
        raise ConfigError("data.train is a fold already", at=str(plan.data["train"].dataset.at))
    for fold in range(count):
        own = {"type": "Fold", "folds": count, "fold": fold}
        changes = [f"data.train.dataset={json.dumps({**own, 'dataset': train})}"]
        held_out = json.dumps({**own, "dataset": held, "held_out": True})
        if "val" in data:
            changes.append(f"data.val.dataset={held_out}")
        else:
            size = plan.data["train"].batch_size
            changes.append(f"+data.val={{dataset: {held_out}, batch_size: {size}}}")
        yield f"fold-{fold}", changes


def _mapping(dataset: Any) -> dict[str, Any]:
    return dict(dataset) if isinstance(dataset, Mapping) else {"type": dataset}


def _without(words: list[str], flags: tuple[str, ...]) -> list[str]:
    """Return what was typed without some flags and their values."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in flags:
            next(rest, None)
        elif not word.startswith(tuple(f"{flag}=" for flag in flags)):
            kept.append(word)
    return kept
