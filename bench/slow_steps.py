"""Plants slow steps of 12 kinds, each ten times, and checks that a run names their cause.

    python bench/slow_steps.py [--times 10] [--only WORD]

Each kind is a run of `etude train` with steps of some milliseconds, in which ten steps are slowed down. What the run
says is read from its `status.json`. As root, the runs come before other programs: the processor that those
take away is a true cause, too, and would be named in place of the planted one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from _common import table

PARTS = '''
import gc, mmap, os, signal, subprocess, sys, threading, time
import torch
from torch import nn
import etude

KIND, RANK = os.environ["KIND"], int(os.environ.get("RANK", "0"))
EVERY, FIRST, LONG = 20, 40, 0.25


def due(step):
    """Steps 40, 60, 80 …, counted from 1."""
    return step >= FIRST and step % EVERY == 0


def fill(path):
    """Write and sync until LONG is over."""
    end, block = time.perf_counter() + LONG, os.urandom(1 << 22)
    with open(path, "wb", buffering=0) as file:
        while time.perf_counter() < end:
            file.write(block)
            os.fsync(file.fileno())
    os.remove(path)


class Data(torch.utils.data.Dataset):
    deterministic = True

    def __len__(self):
        return 8 * 1000

    def __getitem__(self, index):
        if due(index // 8 + 1) and index % 8 == 5:
            if KIND in ("sample", "sample of a worker"):
                time.sleep(LONG)
            if KIND == "disk":
                fill("block")
        return torch.full((64,), float(index)), index % 4


def collated(samples):
    inputs = torch.stack([one for one, _ in samples])
    step = int(inputs[0, 0]) // 8 + 1
    if KIND == "larger batch" and due(step):
        inputs = inputs.repeat(60, 1)
    return inputs, torch.tensor([target for _, target in samples]).repeat(len(inputs) // len(samples))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 4))
        self.calls = 0
        self.table = []

    def forward(self, x):
        return self.layers(x)


class Branching(Net):
    """Compiled once more for each new value."""

    def __init__(self):
        super().__init__()
        self.mode = 0

    def forward(self, x):
        return self.layers(x) * (1.0 + 0.001 * self.mode)


class Plant(etude.Hook):
    def before_train(self, run):
        if KIND == "garbage":
            gc.disable()
        if KIND == "stopped":
            self.helper = subprocess.Popen(
                [sys.executable, "-c", "import os, signal, sys, time\\n"
                 "for line in sys.stdin:\\n    os.kill(int(line), signal.SIGSTOP); time.sleep(0.25);"
                 " os.kill(int(line), signal.SIGCONT)"], stdin=subprocess.PIPE, text=True)
        if KIND == "cpu":
            self.others = [subprocess.Popen([sys.executable, "-c",
                "import os, signal\\nos.nice(-15)\\n"
                "import time\\nfor line in open(0):\\n    end = time.perf_counter() + 0.4\\n"
                "    while time.perf_counter() < end: pass"], stdin=subprocess.PIPE, text=True) for _ in range(2)]

    def before_step(self, run):
        if not due(run.step + 1):
            return
        if KIND == "recompilation":
            run.model.mode += 1
        if KIND == "stopped":
            self.helper.stdin.write(f"{os.getpid()}\\n")
            self.helper.stdin.flush()
            end = time.perf_counter() + 0.05
            while time.perf_counter() < end:
                pass
        if KIND == "cpu":
            for other in self.others:
                other.stdin.write("go\\n")
                other.stdin.flush()
            end = time.thread_time() + 0.03
            while time.thread_time() < end:
                pass
        if KIND == "garbage":
            rubbish = [[index] for index in range(1_500_000)]
            gc.collect()
        if KIND == "faults":
            size = 1 << 29
            block = mmap.mmap(-1, size)
            block.madvise(mmap.MADV_NOHUGEPAGE)
            for at in range(0, size, 4096):
                block[at] = 1
            block.close()

    def after_step(self, run):
        if KIND == "hook" and due(run.step + 1):
            time.sleep(LONG)
        if KIND == "another rank" and RANK == 1 and due(run.step + 1):
            time.sleep(LONG)


class Slow:
    """A writer at the end of a slow line."""

    def write(self, record):
        if KIND == "logging" and record.split == "train" and due(record.step):
            time.sleep(LONG)

    def close(self): ...


class Heavy:
    """A part of the state that takes long to capture."""

    def state_dict(self):
        time.sleep(LONG)
        return {}

    def load_state_dict(self, state): ...


class Carry(etude.Hook):
    def before_train(self, run):
        if KIND == "save":
            run.extra_parts["heavy"] = Heavy()


@etude.WRITERS.register
def SlowWriter(folder):
    return Slow()
'''
CONFIG = """
imports: [slow_parts.py]
model: {{type: slow_parts.{model}}}
loss: CrossEntropyLoss
data:
  train: {{dataset: {{type: slow_parts.Data}}, batch_size: {batch}, shuffle: false, collate: slow_parts.collated, workers: {workers}}}
optim: {{type: SGD, lr: 0.0001}}
train: {{steps: {steps}, threads: 1{compile}}}
log: {{every: 10step{writers}}}
hooks: [slow_parts.Plant, slow_parts.Carry]
checkpoint: {save}
"""


class Kind(NamedTuple):
    """What is planted, and whether a cause that a run names is right."""

    name: str
    is_right: Callable[[int, str, str], bool]
    options: dict[str, str] = {}
    nproc: int = 1


def of(cause: str) -> Callable[[int, str, str], bool]:
    return lambda step, said, why: said == cause


def of_sample(step: int, said: str, why: str) -> bool:
    return said == f"sample {8 * (step - 1) + 5}"


KINDS = (
    Kind("sample", of_sample),
    Kind("sample of a worker", of_sample, {"workers": "1"}),
    Kind("garbage", of("garbage collection")),
    Kind("save", of("a save"), {"save": "{every: 20step, keep: 1}"}),
    Kind("hook", of("hook Plant")),
    Kind("faults", of("page faults")),
    Kind("cpu", of("CPU taken by others")),
    Kind("another rank", lambda step, said, why: said == "another rank" and "hook Plant" in why, {"batch": "16"}, 2),
    Kind("disk", of("disk")),
    Kind("recompilation", of("recompilation"), {"model": "Branching", "compile": ", compile: {backend: eager}"}),
    Kind("logging", of("logging"), {"writers": ", to: [SlowWriter]"}),
    Kind("stopped", of("the process was stopped")),
    Kind("larger batch", of("a larger batch")),
)


def tried(kind: Kind, times: int) -> tuple[int, list[str]]:
    """Run one kind; return how many of the planted steps were named right, and what was said of the others."""
    usual = {"model": "Net", "workers": "0", "compile": "", "writers": "", "save": "false", "batch": "8"}
    steps = 20 * (times + 1) + 10
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "slow_parts.py").write_text(PARTS)
        (folder / "c.yaml").write_text(CONFIG.format(**usual | kind.options, steps=steps))
        words = [sys.executable, "-m", "etude", "train", "c.yaml", "-q", "--folder", "run"]
        words += ["--nproc", str(kind.nproc)] if kind.nproc > 1 else []
        # On one processor, so that another program with more weight takes it away.
        words = ["taskset", "-c", "0", *words] if kind.name == "cpu" else words
        if kind.name != "cpu" and os.geteuid() == 0:
            words = ["chrt", "-r", "1", *words]
        subprocess.run(words, cwd=folder, check=True, env=os.environ | {"KIND": kind.name, "OMP_NUM_THREADS": "1"})
        slow = json.loads((folder / "run" / "status.json").read_text()).get("slow", {"worst": []})
    found = {one["step"]: (one["cause"], one["why"]) for one in slow["worst"]}
    right, others = 0, []
    for step in range(40, 40 + 20 * times, 20):
        # What begins in a step may show in the next one.
        said = [found[near] for near in (step, step + 1) if near in found]
        if any(kind.is_right(step, *one) for one in said):
            right += 1
        else:
            others.append(f"step {step}: {said}")
    return right, others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--only", default="", metavar="WORD", help="kinds that have this word in their name")
    args = parser.parse_args()
    rows, right, planted = [], 0, 0
    for kind in KINDS:
        if args.only in kind.name:
            count, others = tried(kind, args.times)
            rows.append((kind.name, f"{count} of {args.times}"))
            right, planted = right + count, planted + args.times
            print(*rows[-1], *others, sep="\n  ", flush=True)
    print(table(rows, ("planted", "named right")))
    print(f"\n{right} of {planted} named right ({right / planted:.1%}; goal 95 %)")
    sys.exit(right < 0.95 * planted)


if __name__ == "__main__":
    main()
