"""Several processes: Étude beside a raw DDP loop by hand with the same features, and what starts and saves cost.

    python bench/ddp.py [--ranks 1,2,4,8] [--steps 300] [--rounds 7] [--width 256] [--only rates|jobs] [--json FILE]

Rates: both sides run in the same processes in turn, several rounds, so that a busy machine disturbs both alike; each
side counts with its best round. Features on both sides: DDP, AdamW, clipping, one decision of all ranks at every step
(is the loss finite, does anybody want to stop, is the time up), a mean loss every 50 steps.

Jobs: a start is from the command to the end of the first step, a restart from the last step before a rank is killed to
the next one. A stall is how long training waits for a save of 50 MB, against one copy of the memory that the rank has to
save, made by the same processes right after it; what the ranks tell each other before it is counted apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from _common import Ratio, report
from torch import distributed, nn

JOB = '''
import time
import torch
from torch import distributed
import etude
from etude.dist.layout.shards import is_sharded, local

class Clock(etude.Hook):
    """Writes the time of every step of rank 0, how long each save stalls it, and how long a copy does that."""

    def before_train(self, run):
        saver, self.copied = run.store, None
        save = saver.save

        def timed(run, **options):
            saver.store.wait()
            distributed.barrier()
            began = time.perf_counter()
            save(run, **options)
            self.note(run, "stall", time.perf_counter() - began)
            saver.store.wait()
            self.copy(run)

        store, keep = saver.store, saver.store.save

        def kept(state, **options):
            began = time.perf_counter()
            keep(state, **options)
            self.note(run, "kept", time.perf_counter() - began)

        saver.save, store.save = timed, kept

    def copy(self, run):
        """One copy of what this rank has to save, by all ranks that have something, at the same moment."""
        if self.copied is None:
            whole = 3 * sum(local(param).numel() for param in run.model.parameters())
            self.copied = torch.rand(whole), torch.zeros(whole)
        distributed.barrier()
        began = time.perf_counter()
        if run.world.rank == 0 or is_sharded(run.model):
            self.copied[1].copy_(self.copied[0])
        self.note(run, "copy", time.perf_counter() - began)

    def after_step(self, run):
        self.note(run, "step", time.time())

    def note(self, run, word, value):
        if run.world.rank == 0:
            with open("clock.txt", "a") as file:
                file.write(f"{word} {value}" + chr(10))
'''
CONFIG = """\
imports: [job.py]
model: {type: MLP, sizes: [64, %d, %d, 10]}
loss: CrossEntropyLoss
data: {train: {dataset: Digits, batch_size: 64}}
optim: {type: AdamW, lr: 1e-3}
train: {steps: 60, threads: 1}
checkpoint: {every: 10step, keep: 2}
hooks: [job.Clock]
parallel: {strategy: %s}
"""


def model_of(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def by_hand(width: int, steps: int, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    world, losses, began = distributed.get_world_size(), [], 0.0
    stop, begin = threading.Event(), time.monotonic()  # a handler of signals would set the first
    model = model_of(width)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps + 20):
        if step == 20:
            distributed.barrier()
            began = time.perf_counter()
        order = torch.randint(len(inputs), (64 // world,))
        loss = nn.functional.cross_entropy(model(inputs[order]), targets[order])
        bad = not math.isfinite(loss.detach().numpy())
        agreed = torch.tensor([stop.is_set(), time.monotonic() - begin, bad], dtype=torch.float64)
        work = distributed.all_reduce(agreed, distributed.ReduceOp.MAX, async_op=True) if world > 1 else None
        loss.backward()
        if work is not None:
            work.wait()
        wished, now, bad = agreed.tolist()
        if bad:
            raise SystemExit("the loss is not finite")
        if wished or now > 3600:
            raise SystemExit("stopped")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if step % 50 == 49:
            mean = torch.stack(losses).double().mean()
            if world > 1:
                distributed.all_reduce(mean)
            mean.item()
            losses = []
    distributed.barrier()
    return steps / (time.perf_counter() - began)


def ours(width: int, steps: int, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    import etude
    from etude.data.datasets.tensors import TensorData

    model, times = model_of(width), []

    def look(run: etude.Run) -> None:
        if run.done in (20, steps + 20):
            distributed.barrier()
            times.append(time.perf_counter())

    trainer = etude.Trainer(
        model, loss=nn.CrossEntropyLoss(), optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), clip_norm=1.0,
        hooks=[look], quiet=True, device="cpu",
    )  # fmt: skip
    trainer.fit(TensorData(inputs, targets), batch_size=64, steps=steps + 20)
    return steps / (times[1] - times[0])


def worker(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    from etude.dist import group
    from etude.dist.world import World

    world = World.from_environment()
    group.join(world) if world.is_many else distributed.init_process_group("gloo")
    torch.manual_seed(1)
    inputs, targets = torch.rand(4096, 64), torch.randint(10, (4096,))
    rates: dict[str, list[float]] = {"by hand": [], "etude": []}
    for turn in range(args.rounds):
        sides = [("by hand", by_hand), ("etude", ours)]
        for name, side in sides if turn % 2 else reversed(sides):
            rates[name].append(side(args.width, args.steps, inputs, targets))
    if distributed.get_rank() == 0:
        print(json.dumps({name: max(values) for name, values in rates.items()}))


def rates_of(ranks: int, steps: int, args: argparse.Namespace) -> Ratio:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), __file__]
    words += ["--steps", str(steps), "--rounds", str(args.rounds), "--width", str(args.width)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    rates = json.loads(done.stdout.splitlines()[-1])
    note = f"{rates['etude']:.0f} and {rates['by hand']:.0f} steps/s"
    name = f"rate of {ranks} rank{'s' if ranks > 1 else ''}, Étude / by hand"
    return Ratio(name, rates["etude"] / rates["by hand"], at_least=0.98, note=note)


def job(folder: Path, *words: str, strategy: str, width: int) -> tuple[float, dict[str, list[float]]]:
    """Seconds to the first step, and what the clock has written: the times of steps, stalls of saves, and copies."""
    (folder / "job.py").write_text(JOB)
    (folder / "config.yaml").write_text(CONFIG % (width, width, strategy))
    (folder / "clock.txt").unlink(missing_ok=True)
    began = time.time()
    command = [sys.executable, "-m", "etude", "train", "config.yaml", "-q", "--nproc", "2", *words]
    subprocess.run(
        command, cwd=folder, check=True, stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    lines = [line.split() for line in (folder / "clock.txt").read_text().splitlines()]
    kinds = ("step", "stall", "kept", "copy")
    found = {kind: [float(value) for word, value in lines if word == kind] for kind in kinds}
    return found["step"][0] - began, found


def starts_and_stalls(width: int) -> list[Ratio]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        start = min(job(folder, "--folder", f"start-{n}", strategy="ddp", width=16)[0] for n in range(3))
        steps = job(folder, "--folder", "killed", "--chaos", "kill@step=35,rank=1", strategy="ddp", width=16)[1]["step"]
        restart = max(later - earlier for earlier, later in itertools.pairwise(steps))
        made = [Ratio("restart / start", restart / start, at_most=1.0, note=f"{restart:.1f} s and {start:.1f} s")]
        for strategy in ("ddp", "fsdp"):
            found = job(folder, "--folder", strategy, strategy=strategy, width=width)[1]
            stall, kept, copy = (min(found[kind][2:]) for kind in ("stall", "kept", "copy"))  # the first touch memory
            note = f"{1e3 * kept:.1f} ms, a copy {1e3 * copy:.1f} ms, with what the ranks tell each other {1e3 * stall:.1f} ms"
            made.append(Ratio(f"stall of a save, {strategy} / copy", kept / copy, at_most=1.5, note=note))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1,2,4,8")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--only", choices=["rates", "jobs"], default=None)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    if "RANK" in os.environ:
        worker(args)
        return
    made: list[Ratio] = []
    if args.only != "jobs":
        made += [rates_of(ranks, max(50, args.steps // ranks), args) for ranks in map(int, args.ranks.split(","))]
    if args.only != "rates":
        made += starts_and_stalls(2000)
    report(made, args.json)


if __name__ == "__main__":
    main()
