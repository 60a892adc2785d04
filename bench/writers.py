"""Slowdown of a run with writers on against none: all local ones, and a tracker that hangs.

    python bench/writers.py [ROUNDS]

Runs of the digits example are taken in turn, so that a busy machine disturbs all alike. The training loop is timed, in
wall time and in CPU seconds of the training thread, after the trackers are open; the ratios of the best are printed. What
a run pays once stands beside them: opening, in CPU seconds of the trackers' threads, and its end, in seconds.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

import torch

from etude.api import load_plan, require_sound
from etude.build import Options, build
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
train: {epochs: 25, threads: 1}
metrics: [Accuracy]
log: {every: 20step, to: [%s]}
"""
ALL = "csv, jsonl, tensorboard, {type: wandb, mode: offline}, mlflow"


class Hanging(Tracker):
    name = "hanging"

    def open(self, job: Job) -> str:
        threading.Event().wait()
        return ""


def once(writers: str, *, hang: bool = False) -> tuple[float, float, float, float]:
    """Return wall time, CPU seconds of the training thread and until the trackers are open, and seconds of the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        config = Path(folder) / "c.yaml"
        config.write_text(CONFIG % writers)
        plan, tree = load_plan(config)
        options = Options(folder=Path(folder) / "run", quiet=True)
        run = build(require_sound(plan), options)
        outbox.OPENING = outbox.PATIENCE = 0.2 if hang else 300.0
        with Session(run, options, tree=tree) as session:
            opening = time.process_time()
            run.events.write({"loss": 0.0}, step=0, epoch=0, split="train")
            for writer in run.events.writers:
                if isinstance(writer, Tracker):
                    writer._outbox.ask(lambda: None)
            opening = time.process_time() - opening
            if hang:
                run.events.writers.append(Hanging(options.folder))
            wall, cpu = time.perf_counter(), time.thread_time()
            session.train()
            wall, cpu, end = time.perf_counter() - wall, time.thread_time() - cpu, time.perf_counter()
        return wall, cpu, opening, time.perf_counter() - end


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(1)
    kinds = {"none": ("", False), "all": (ALL, False), "hanging": ("", True)}
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in kinds}
    for number in range(rounds + 1):
        for name, (writers, hang) in kinds.items():
            taken = once(writers, hang=hang)
            if number:  # the first round imports the packages
                times[name].append(taken)
    base = [min(column) for column in zip(*times["none"], strict=True)]
    print("writers    wall s   ratio   CPU s of the training thread   ratio   opening, CPU s   end, s")
    for name, taken in times.items():
        wall, cpu, opening, end = (min(column) for column in zip(*taken, strict=True))
        print(
            f"{name:<9} {wall:7.2f} {wall / base[0]:7.3f} {cpu:30.2f} {cpu / base[1]:7.3f} {opening:16.2f} {end:8.2f}"
        )


if __name__ == "__main__":
    main()
