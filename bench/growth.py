"""Compare CPU time per step and memory of the process early and late in a long run.

    python bench/growth.py [--steps 1000000] [--checkpoints 1000] [--json FILE]

The model is empty and the update only records a loss, so that the engine's own cost is all there is. Each run has a
process of its own, a folder and all writers. Early is the first tenth of the run after 10 steps, late the last tenth.

The speed of a virtual machine changes within a minute by more than the goal. So each tenth is taken in ten pieces, a loop
of fixed work runs before and after each of them, and a piece counts by its ratio to that loop; the median is shown.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, report, table

WARM = 10


class Gauge:
    """Takes the CPU time and the memory of the process when a step is reached, and the speed of the machine then."""

    def __init__(self, *steps: int) -> None:
        self.steps = frozenset(steps)
        #: Step → CPU seconds before and after the look at memory and speed.
        self.seconds: dict[int, tuple[float, float]] = {}
        #: Step → CPU microseconds of a piece of fixed work.
        self.speed: dict[int, float] = {}
        self.megabytes: dict[int, float] = {}

    def __call__(self, run: Any) -> None:
        if run.done in self.steps:
            came = time.process_time()
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.megabytes[run.done] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
            self.speed[run.done] = fixed_work()
            self.seconds[run.done] = came, time.process_time()

    def relative(self, steps: list[int]) -> float:
        """Return the time of a step between ``steps``, in pieces of fixed work: the median over the pieces."""
        return statistics.median(
            (self.seconds[end][0] - self.seconds[begin][1])
            / (end - begin)
            * 2e6
            / (self.speed[begin] + self.speed[end])
            for begin, end in itertools.pairwise(steps)
        )


def fixed_work(count: int = 20_000) -> float:
    """Return the CPU microseconds of what a step is made of: a small tensor, calls, and a dict that is written to."""
    import torch

    values: dict[str, Any] = {}
    begin = time.process_time()
    for number in range(count):
        values[f"loss {number % 8}"] = torch.zeros(())
    return (time.process_time() - begin) / count * 1e6


def train(steps: int, log: str, every: str | None) -> dict[str, float]:
    """Train an empty model and return what a step cost early and late, and the memory then."""
    import torch

    import etude
    from etude.hooks.checkpoint import Checkpoint

    torch.set_num_threads(1)

    def update(run: etude.Run, batch: Any) -> None:
        run.events.put("loss", torch.zeros(()))

    saving = None
    if every is not None:
        saving = Checkpoint(keep=steps)
        saving.every = every
    piece = steps // 100
    early = [WARM + number * piece for number in range(11)]
    late = [steps - number * piece for number in reversed(range(11))]
    gauge = Gauge(*early, *late)
    model = torch.nn.Linear(1, 1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = etude.Trainer(
            model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), update=update, folder=folder, quiet=True,
            hooks=[gauge],
        )  # fmt: skip
        trainer.fit([0] * 1000, steps=steps, log=log, checkpoint=saving)
    return {
        "early": gauge.relative(early),
        "late": gauge.relative(late),
        "memory early": gauge.megabytes[early[-1]],
        "memory late": gauge.megabytes[late[-1]],
    }


def measured(*words: object) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", *(json.dumps(word) for word in words)]
    found = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(found.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--checkpoints", type=int, default=1000)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(train(*(json.loads(word) for word in args.one))))
        return
    steps, saves = args.steps, args.checkpoints
    runs = {
        f"{steps:,} steps, {steps // 100:,} records": measured(steps, "100step", None),
        f"{steps:,} steps, one record": measured(steps, f"{steps}step", None),
        f"{saves * 100:,} steps, {saves:,} checkpoints kept": measured(saves * 100, "100step", "100step"),
    }
    rows = []
    ratios = []
    for name, found in runs.items():
        cells = [found[word] for word in ("early", "late", "memory early", "memory late")]
        rows.append((name, *(f"{cell:.2f}" for cell in cells)))
        ratios.append(
            Ratio(f"growth: time per step at the end ÷ at the beginning: {name}", cells[1] / cells[0], at_most=1.1)
        )
        ratios.append(Ratio(f"growth: memory at the end ÷ at the beginning: {name}", cells[3] / cells[2], at_most=1.05))
    print(table(rows, ("run", "CPU of a step early, in pieces of fixed work", "late", "MB early", "late")))
    print()
    report(ratios, args.json)


if __name__ == "__main__":
    main()
