"""What the ledger costs: a step of a small model with it and without it, in turns.

    python bench/ledger.py [--rounds 12] [--steps 2000]

Prints the median seconds of a step without the ledger, and the median of the ratios of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

import etude

torch.set_num_threads(1)


def seconds(steps: int, *, ledger: bool) -> float:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
    with tempfile.TemporaryDirectory() as folder:
        trainer = etude.Trainer(
            model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
            loss=torch.nn.CrossEntropyLoss(), folder=Path(folder) / "run", quiet=True, ledger=ledger,
        )  # fmt: skip
        moments: list[float] = []
        trainer.on("before_step")(
            lambda run: moments.append(time.perf_counter()) if run.step in (100, steps - 1) else None
        )
        trainer.fit(data, steps=steps, batch_size=64, checkpoint=None)
    return (moments[1] - moments[0]) / (steps - 101)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    seconds(300, ledger=True)
    rounds = [(seconds(args.steps, ledger=False), seconds(args.steps, ledger=True)) for _ in range(args.rounds)]
    ratios = [with_it / without for without, with_it in rounds]
    print(f"step without the ledger   {statistics.median(one for one, _ in rounds) * 1e6:7.1f} µs")
    print(f"with it / without it      {statistics.median(ratios):7.4f}   ({min(ratios):.4f} to {max(ratios):.4f})")


if __name__ == "__main__":
    main()
