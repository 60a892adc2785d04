"""Plants hangs of 20 kinds in jobs of two or three ranks, and checks that the report names the rank and what it does.

    python bench/hangs.py [--only WORD] [--patience 6]

Each kind is a job of `etude train --nproc N --hang-timeout PATIENCE`. The report is right if it blames the right ranks
and has the words that say what they do, within twice the timeout after the ranks stand still. Where gloo aborts at
once, because sizes differ, nobody hangs: the report has the line of the rank that aborted.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from _common import table

PARTS = '''
import os, re, signal, socket, subprocess, threading, time
import torch
from torch import distributed as dist, nn
import etude

RANK = int(os.environ.get("RANK", "0"))
KIND, STEP = os.environ.get("KIND", ""), 5
SIDE = None


def begun():
    """The moment from which on nothing moves."""
    with open("begun.txt", "a") as file:
        print(time.time(), file=file)


def stand(kind, rank=1):
    if KIND == kind and RANK == rank:
        begun()
        stuck_here()


def stuck_here():
    time.sleep(3600)


class Data(torch.utils.data.Dataset):
    seen = 0

    def __len__(self):
        return 256

    def __getitem__(self, index):
        if index >= 64:
            stand("sample"), stand("worker")
        return torch.randn(16), index % 4


def collated(samples):
    if KIND == "collate" and any(int(target) == 3 for _, target in samples):
        Data.seen += 1
        if Data.seen > 4:
            stand("collate")
    return torch.stack([one for one, _ in samples]), torch.tensor([target for _, target in samples])


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        Net.steps += 1
        if Net.steps > STEP:
            stand("backward")
        return grad


class Net(nn.Module):
    steps = 0

    def __init__(self):
        super().__init__()
        self.first, self.extra, self.last = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        if self.calls > STEP:
            stand("forward")
        x = torch.relu(self.first(x))
        if KIND == "backward":
            x = Backward.apply(x)
        x = self.extra(x)
        if self.training and self.calls == STEP and KIND == "collective in forward" and RANK == 0:
            begun()
            dist.all_reduce(x.sum().detach())
        return self.last(x)


class Stuck:
    """A metric."""
    def reset(self): pass
    def update(self, output, target): pass
    def compute(self):
        stand("metric")
        return {"stuck": 0.0}


class Late(etude.Hook):
    def before_train(self, run):
        global SIDE
        SIDE = dist.new_group(list(range(run.world.size)))

    def after_epoch(self, run):
        stand("end of an epoch")

    def before_step(self, run):
        if run.step == STEP:
            stand("before a step", rank=0)

    def after_step(self, run):
        if run.step != STEP:
            return
        stand("hook")
        stand("third rank", rank=2)
        if KIND == "loop" and RANK == 1:
            begun()
            while True:
                pass
        if KIND == "holds the interpreter" and RANK == 1:
            begun()
            re.match("(a+)+b", "a" * 60)
        if KIND == "lock" and RANK == 1:
            begun()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        if KIND == "stopped" and RANK == 1:
            begun()
            os.kill(os.getpid(), signal.SIGSTOP)
        if KIND == "pipe" and RANK == 1:
            begun()
            os.mkfifo("fifo")
            open("fifo").read()
        if KIND == "child" and RANK == 1:
            begun()
            subprocess.run(["sleep", "3600"])
        if KIND == "socket" and RANK == 1:
            begun()
            server = socket.create_server(("127.0.0.1", 0))
            server.accept()
        if KIND == "only rank 0 reduces" and RANK == 0:
            begun()
            dist.all_reduce(torch.zeros(7))
        if KIND == "extra barrier" and RANK == 1:
            begun()
            dist.barrier(group=SIDE)
        if KIND == "other kinds":
            begun()
            if RANK == 0:
                dist.all_reduce(torch.zeros(8), group=SIDE)
            else:
                dist.broadcast(torch.zeros(8), src=0, group=SIDE)
            dist.barrier(group=SIDE)
        if KIND == "other shapes":
            begun()
            dist.all_reduce(torch.zeros(3 if RANK else 100_000), group=SIDE)
            dist.barrier(group=SIDE)
        if KIND == "other types":
            begun()
            dist.all_reduce(torch.zeros(100_000, dtype=torch.float64 if RANK else torch.float32), group=SIDE)
            dist.barrier(group=SIDE)
        if KIND == "other order":
            begun()
            for group in (SIDE, None) if RANK else (None, SIDE):
                dist.all_reduce(torch.zeros(5), group=group)
        if KIND == "message that never comes" and RANK == 0:
            begun()
            dist.recv(torch.zeros(3), src=1)
'''
CONFIG = """
imports: [hang_parts.py]
model: {{type: hang_parts.Net}}
loss: CrossEntropyLoss
data:
  train: {{dataset: {{type: hang_parts.Data}}, batch_size: 32, shuffle: false, workers: {workers}{collate}}}
  val: {{dataset: {{type: hang_parts.Data}}, batch_size: 32}}
optim: {{type: SGD, lr: 0.01}}
train: {{epochs: 4, threads: 1}}
metrics: [{metric}]
parallel: {{strategy: {strategy}}}
hooks: [hang_parts.Late]
checkpoint: false
"""


class Kind(NamedTuple):
    """What is planted, the ranks that the report has to blame, and words that it has to have."""

    name: str
    blamed: tuple[int, ...]
    words: tuple[str, ...]
    nproc: int = 2
    workers: int = 0
    strategy: str = "ddp"


KINDS = (
    Kind("hook", (1,), ("hook Late at after_step", "stuck_here")),
    Kind("before a step", (0,), ("hook Late at before_step", "stuck_here")),
    Kind("end of an epoch", (1,), ("hook Late at after_epoch", "stuck_here")),
    Kind("sample", (1,), ("__getitem__", "stuck_here")),
    Kind("worker", (1,), ("loads data",), workers=1),
    Kind("collate", (1,), ("collated", "stuck_here")),
    Kind("forward", (1,), ("forward", "stuck_here")),
    Kind("backward", (1,), ("backward", "stuck_here")),
    Kind("forward", (1,), ("forward", "stuck_here"), strategy="fsdp"),
    Kind("metric", (1,), ("compute", "stuck_here")),
    Kind("third rank", (2,), ("hook Late at after_step",), nproc=3),
    Kind("loop", (1,), ("hook Late at after_step",)),
    Kind("holds the interpreter", (1,), ("lets no other thread of Python run",)),
    Kind("lock", (1,), ("hook Late at after_step", "lock.acquire")),
    Kind("stopped", (1,), ("stopped by a signal",)),
    Kind("pipe", (1,), ("hook Late at after_step", "fifo")),
    Kind("only rank 0 reduces", (), ("killed by SIGABRT", "dist.all_reduce(torch.zeros(7))")),
    Kind("extra barrier", (0, 1), ("did not come to", "barrier", "rank 1 waits")),
    Kind("other kinds", (0, 1), ("disagree", "all_reduce float32[8]", "broadcast float32[8]")),
    Kind("other shapes", (), ("killed by SIGABRT", "dist.all_reduce")),
    Kind("other types", (), ("killed by SIGABRT", "dist.all_reduce")),
    Kind("other order", (0, 1), ("did not come to", "all_reduce float32[5]")),
    Kind("collective in forward", (), ("killed by SIGABRT", "dist.all_reduce(x.sum()")),
    Kind("message that never comes", (0,), ("recv",)),
)


def tried(kind: Kind, patience: float) -> tuple[bool, float, str]:
    """Run one job; return whether it was named right, seconds until the report, and the report."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "hang_parts.py").write_text(PARTS)
        collate = ", collate: hang_parts.collated" if kind.name == "collate" else ""
        metric = "hang_parts.Stuck" if kind.name == "metric" else "Accuracy"
        text = CONFIG.format(workers=kind.workers, strategy=kind.strategy, collate=collate, metric=metric)
        (folder / "c.yaml").write_text(text)
        words = ["train", "c.yaml", "-q", "--nproc", str(kind.nproc), "--hang-timeout", f"{patience:g}s"]
        job = subprocess.run(
            [sys.executable, "-m", "etude", *words, "--max-restarts", "0"], cwd=folder, timeout=20 * patience + 60,
            capture_output=True, text=True, env=environment(kind.name),
        )  # fmt: skip
        ended = time.time()
        began = (
            [float(line) for line in (folder / "begun.txt").read_text().split()]
            if (folder / "begun.txt").exists()
            else []
        )
    said = job.stderr
    blamed = {int(number) for number in re.findall(r"rank (\d+) on \S+ has not moved", said)}
    seconds = ended - max(began, default=ended)
    right = blamed == set(kind.blamed) and all(word in said for word in kind.words) and seconds <= 2 * patience
    return right and bool(began), seconds, said


def environment(kind: str) -> dict[str, str]:
    import os

    return {**os.environ, "KIND": kind, "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD", help="kinds that have this word in their name")
    parser.add_argument("--patience", type=float, default=6.0)
    args = parser.parse_args()
    rows, count = [], 0
    for kind in KINDS:
        if args.only not in kind.name:
            continue
        right, seconds, said = tried(kind, args.patience)
        count += right
        rows.append((kind.name, kind.strategy, "right" if right else "WRONG", f"{seconds / args.patience:.2f}"))
        print(*rows[-1], flush=True)
        if not right:
            print(said[-4000:], flush=True)
    print(table(rows, ("planted", "strategy", "named", "seconds ÷ timeout")))
    print(f"\n{count} of {len(rows)} named right within twice the timeout")
    sys.exit(count < len(rows))


if __name__ == "__main__":
    main()
