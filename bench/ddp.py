"""Steps a second of two or more processes: Étude against a raw DDP loop by hand with the same features.

    python bench/ddp.py [--nproc 2] [--steps 300] [--rounds 5] [--width 256]

Both run in the same processes in turn, several rounds, so that a busy machine disturbs both alike; the ratio of the
medians is what counts. Features on both sides: DDP, AdamW, clipping, a finite loss on all ranks, a mean loss each 50.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from torch import distributed, nn


def model_of(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def by_hand(width: int, steps: int, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    model = nn.parallel.DistributedDataParallel(model_of(width), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rank, world, losses = distributed.get_rank(), distributed.get_world_size(), []
    began = 0.0
    for step in range(steps + 20):
        if step == 20:
            distributed.barrier()
            began = time.perf_counter()
        order = torch.randint(len(inputs), (64 // world,))
        loss = nn.functional.cross_entropy(model(inputs[order]), targets[order])
        bad = (~loss.detach().isfinite()).double().reshape(1)
        work = distributed.all_reduce(bad, distributed.ReduceOp.MAX, async_op=True)
        loss.backward()
        work.wait()
        if bad.item():
            raise SystemExit(f"rank {rank}: not finite")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if step % 50 == 49:
            mean = torch.stack(losses).double().mean()
            distributed.all_reduce(mean)
            losses = []
    distributed.barrier()
    return steps / (time.perf_counter() - began)


class Clock:
    """Steps a second after the first 20."""

    began = ended = 0.0


def ours(width: int, steps: int, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    import etude
    from etude.data.datasets.tensors import TensorData

    model, clock = model_of(width), Clock()

    def look(run: etude.Run) -> None:
        if run.done in (20, steps + 20):
            distributed.barrier()
            clock.began, clock.ended = clock.ended, time.perf_counter()

    trainer = etude.Trainer(
        model, loss=nn.CrossEntropyLoss(), optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), clip_norm=1.0,
        hooks=[look], quiet=True, device="cpu",
    )  # fmt: skip
    trainer.fit(TensorData(inputs, targets), batch_size=64, steps=steps + 20)
    return steps / (clock.ended - clock.began)


def worker(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    from etude.dist import group
    from etude.dist.world import World

    group.join(World.from_environment())
    torch.manual_seed(1)
    inputs, targets = torch.rand(4096, 64), torch.randint(10, (4096,))
    rates: dict[str, list[float]] = {"by hand": [], "etude": []}
    for _ in range(args.rounds):
        rates["by hand"].append(by_hand(args.width, args.steps, inputs, targets))
        rates["etude"].append(ours(args.width, args.steps, inputs, targets))
    if distributed.get_rank() == 0:
        print(json.dumps(rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    if "RANK" in os.environ:
        worker(args)
        return
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(args.nproc)]
    done = subprocess.run([*words, __file__, *sys.argv[1:]], stdout=subprocess.PIPE, text=True, check=True)
    rates = json.loads(done.stdout.splitlines()[-1])
    for name, values in rates.items():
        print(f"{name:10} {statistics.median(values):8.0f} steps/s   ({min(values):.0f} to {max(values):.0f})")
    ratios = [b / a for a, b in zip(rates["by hand"], rates["etude"], strict=True)]
    print(f"etude / by hand, median of rounds: {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
