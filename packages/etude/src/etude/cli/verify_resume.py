"""Prove that a killed and resumed run of CONFIG ends in the same bits as an undisturbed one. Trains once without a
disturbance and again with a SIGKILL at several steps, then compares weights, optimizer, averages, counters,
generators and metrics.jsonl, and names the first difference. Exit 0: the same; 1: different, or nothing was resumed.

  etude verify-resume config.yaml train.epochs=2 --kills 3
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from etude.cli import forks
from etude.cli.flags import add_config, add_no_code
from etude.config.files import read_text
from etude.errors import EtudeError, UserError
from etude.units import counted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_config(parser, "values to change, for example a shorter run")
    add_no_code(parser)
    parser.add_argument("--kills", type=int, default=2, metavar="N", help="how many times to kill the second run")
    parser.add_argument("--limit-batches", type=int, metavar="N", help="at most N batches per epoch")
    parser.add_argument("--dialect", default="", help=argparse.SUPPRESS)
    parser.add_argument("--keep", metavar="DIR", help="keep both runs in DIR")


def run(args: argparse.Namespace) -> int:
    if not any(map(os.path.isfile, (args.config, os.path.join(args.config, "plan.yaml")))):
        read_text(args.config)  # says why it cannot be read
    root = Path(args.keep) if args.keep else Path(tempfile.mkdtemp(prefix="etude-verify-"))
    try:
        return _verify(args, root)
    finally:
        if not args.keep:
            shutil.rmtree(root, ignore_errors=True)


def _verify(args: argparse.Namespace, root: Path) -> int:
    from etude.checkpoint.tools.same_runs import compare_runs, saved_steps, steps_of

    args.more = _adapt(args)
    calm, killed = root / "undisturbed", root / "killed"
    print("training without a disturbance …", flush=True)
    _train(args, calm, expect=0)
    total = steps_of(calm)
    if total < 2:
        raise UserError(f"the run has {total} steps; two are needed to be killed in between")
    last = resumed = 0
    for number in range(args.kills):
        for step in _moments(total, number, args.kills):
            if step <= last:
                continue
            print(f"training, killed after step {step} …", flush=True)
            _train(args, killed, f"--chaos=kill-saved@step={step}", *(["--resume"] if last else []), expect=-9)
            last = step
            if saved_steps(killed):
                resumed += 1
                break
    print("training, resumed to the end …", flush=True)
    _train(args, killed, "--resume", expect=0)
    found = compare_runs(calm, killed)
    if found is not None:
        print(f"NOT the same: {found}")
        return 1
    if not resumed:
        where = f" ({_saves(args)})" if _saves(args) else ""
        print(
            f"this proves nothing: up to step {last} there was no checkpoint to resume from; "
            f"save more often{where}, or train longer"
        )
        return 1
    print(f"the same bits after {total} steps and {counted(resumed, 'resume')}")
    return 0


def _saves(args: argparse.Namespace) -> str:
    """Return the place in the config that says how often a checkpoint is saved."""
    from etude.api import load_plan

    plan, _ = load_plan(args.config, args.overrides, dialect=args.dialect)
    hooks = [hook.spec for hook in plan.hooks if "Checkpoint" in hook.spec.name]
    return next((str(spec.place("interval")) for spec in hooks if spec.at.file), "")


def _adapt(args: argparse.Namespace) -> list[str]:
    """Let each run keep its checkpoints in its own folder, because the two must not share a place. Return the flag that
    gives both the same seed if the config has none; they would differ from the first step."""
    from etude import dialects
    from etude.api import load_plan

    with suppress(UserError):  # the first training reports it
        plan, tree = load_plan(args.config, args.overrides, dialect=args.dialect)
        spoken = dialects.of(plan)
        args.overrides += spoken.keep_apart(tree)
        if spoken.seed_key and tree.get(*spoken.seed_key) is None:
            print("the config has no seed: all runs get --seed=0", flush=True)
            return ["--seed=0"]
    return []


def _moments(total: int, number: int, kills: int) -> Iterator[int]:
    """Choose when to kill: evenly spread, and while there is no checkpoint by then, 1, 2, 4 … steps later."""
    first = max(1, total * (number + 1) // (kills + 1))
    yield first
    later = 1
    while first + later < total:
        yield first + later
        later *= 2
    yield total - 1


def _train(args: argparse.Namespace, folder: Path, *words: str, expect: int) -> None:
    command = ["train", args.config, *args.overrides, "--folder", str(folder), *args.more, *words]
    if args.limit_batches is not None:
        command.append(f"--limit-batches={args.limit_batches}")
    if args.dialect:
        command.append(f"--dialect={args.dialect}")
    code, said = forks.run(command)
    if code != expect:
        raise Ended(code, expect, said)


class Ended(EtudeError):
    """A training that did not end as expected: its exit code and its message."""

    def __init__(self, code: int, expected: int, said: str) -> None:
        self.exit_code = code if code > 0 else 1
        wanted = "be killed" if expected < 0 else "finish"
        lines = [re.sub(r"^etude: (error: )?", "", line) for line in said.splitlines()[-12:]]
        super().__init__("\n  ".join([f"the training was to {wanted}, and ended with exit code {code}:", *lines]))
