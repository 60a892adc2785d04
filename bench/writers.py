"""Slowdown of a run with writers on against none: all local ones, and a tracker that hangs.

    python bench/writers.py [ROUNDS] [--keep FILE]

A round trains the digits example once without writers, once with all of them and once with a tracker that hangs, in an
order that changes from round to round. The training loop is timed after the trackers are open, in two ways:

* ``by the clock``: wall time, as a ratio to the run without writers of the same round; median and quartiles. Equal
  work takes 5 to 15 % more or less from run to run on a shared machine, which hides a goal of 2 %.
* ``at most``: what the writers use, counted by itself: CPU seconds of the training thread while it hands records to
  them, and CPU seconds of their threads, as a share of the wall time without writers. Training is not slowed by more,
  even if it waited for every instruction of those threads. Work of W&B's own process is not in it.

What a run pays once stands beside them: opening, in CPU seconds, and its end, in seconds. ``--keep`` adds the rounds to
those of a file, so that several quiet moments make one measurement.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from etude.api import load_plan, require_sound
from etude.build import build
from etude.building.options import Options
from etude.core.loop import train
from etude.events.record import Events, Record
from etude.events.trackers import outbox
from etude.events.trackers.tracker import Job, Tracker
from etude.session.session import Session

CONFIG = """
model: {type: MLP, sizes: [64, 1024, 1024, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64}
  val: {dataset: {type: Digits, split: val}, batch_size: 256}
optim: {type: AdamW, lr: 1e-3}
train: {epochs: 15, threads: 1}
metrics: [Accuracy]
log: {every: 20step, to: [%s]}
"""
ALL = "csv, jsonl, tensorboard, {type: wandb, mode: offline}, mlflow"
#: Name → the writers, and whether one of them hangs.
KINDS = {"none": ("", False), "all": (ALL, False), "hanging": ("", True)}
GOAL = 1.02
#: Threads that a run without writers has too.
ENGINE = ("etude-time", "etude-save", "etude-watchdog")


class Hanging(Tracker):
    name = "hanging"

    def open(self, job: Job) -> str:
        threading.Event().wait()
        return ""


class Counted:
    """Counts the CPU seconds of the training thread inside ``events``, and those of all other threads by name."""

    def __init__(self, events: Events) -> None:
        self.handing = 0.0
        self._hand, events._hand = events._hand, self.hand

    def hand(self, record: Record) -> None:
        began = time.thread_time()
        self._hand(record)
        self.handing += time.thread_time() - began


def threads() -> dict[str, float]:
    """Return the CPU seconds of each thread beside this one; threads that Python has not made are called by a number."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = {}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) != threading.get_native_id():
            found[f"{names.get(int(task.name), '')} {task.name}"] = (
                int((task / "schedstat").read_text().split()[0]) / 1e9
            )
    return found


def once(writers: str, hang: bool) -> dict[str, Any]:
    """Return what one run takes; see above."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = Path(folder) / "c.yaml"
        config.write_text(CONFIG % writers)
        plan, tree = load_plan(config)
        options = Options(folder=Path(folder) / "run", quiet=True)
        run = build(require_sound(plan), options)
        outbox.OPENING = outbox.PATIENCE = 0.2 if hang else 300.0
        with Session(run, options, tree=tree):
            opening = time.process_time()
            run.events.write({"loss": 0.0}, step=0, epoch=0, split="train")
            for writer in run.events.writers:
                if isinstance(writer, Tracker):
                    writer._outbox.ask(lambda: None)
            opening = time.process_time() - opening
            if hang:
                run.events.writers.append(Hanging(options.folder))
            counted, before, began = Counted(run.events), threads(), time.perf_counter()
            train(run)
            wall, after = time.perf_counter() - began, threads()
            ended = time.perf_counter()
        end = time.perf_counter() - ended
        used = {name: spent - before.get(name, 0.0) for name, spent in after.items()}
        return {"wall": wall, "handing": counted.handing, "threads": used, "opening": opening, "end": end}


def rounds(count: int) -> list[dict[str, dict[str, Any]]]:
    """Return the runs of ``count`` rounds by kind. One before them, which imports the packages, does not count."""
    names, found = list(KINDS), []
    for name in names:
        once(*KINDS[name])
    for number in range(count):
        turned = names[number % 3 :] + names[: number % 3]
        found.append({name: once(*KINDS[name]) for name in turned})
    return found


def of_writers(used: dict[str, float]) -> dict[str, float]:
    """Return the CPU seconds of the writers' threads: all but the engine's own."""
    return {name: spent for name, spent in used.items() if not name.startswith(ENGINE) and spent > 0}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rounds", nargs="?", type=int, default=9)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = rounds(args.rounds)
    if args.keep is not None:
        if args.keep.exists():
            found = json.loads(args.keep.read_text()) + found
        args.keep.write_text(json.dumps(found))
    middle = statistics.median
    whole, plain = (middle(one["none"][what] for one in found) for what in ("wall", "handing"))
    print(f"{len(found)} rounds of {whole:.2f} s; the goal is {GOAL}")
    print("writers    at most   handing, s   their threads, s   by the clock   quartiles        opening, s   end, s")
    for name in list(KINDS)[1:]:
        runs = [one[name] for one in found]
        handing = middle(one["handing"] for one in runs) - plain
        spent = middle(sum(of_writers(one["threads"]).values()) for one in runs)
        ratios = [one[name]["wall"] / one["none"]["wall"] for one in found]
        low, clock, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        opening, end = (middle(one[what] for one in runs) for what in ("opening", "end"))
        print(
            f"{name:<9}{1 + (handing + spent) / whole:>9.3f}{handing:>13.3f}{spent:>19.3f}{clock:>15.3f}   "
            f"{f'{low:.3f} to {high:.3f}':<15}{opening:>12.2f}{end:>9.2f}"
        )
        by_name: dict[str, list[float]] = {}
        for one in runs:
            for thread, cpu in of_writers(one["threads"]).items():
                by_name.setdefault(thread.rpartition(" ")[0] or "made by a package", []).append(cpu)
        for thread, spent_by in sorted(by_name.items(), key=lambda pair: -sum(pair[1])):
            print(f"  {sum(spent_by) / len(runs):.3f} s  {thread}")


if __name__ == "__main__":
    main()
