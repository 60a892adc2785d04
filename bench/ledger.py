"""What the ledger costs: a step of a small model with it and without it, in turns inside of one run.

    python bench/ledger.py [--pairs 200] [--steps 1000] [--alone] [--growth 1000000]

One run trains all steps. Its hook that notes steps is taken out and put in again every ``--steps`` steps, and each part
with it ends when its rows are written. Processor time of all threads is compared, so that the thread of the ledger
counts in full and other processes do not. Neighbouring parts make a pair; the median of their ratios is printed with
its 95 % interval. ``--alone`` measures the work of the ledger by itself, in the least of many tries: that decides on a
busy machine, too. ``--growth`` notes so many steps and prints the size of the file and of the process on the way.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import etude
from etude.core.run import Run
from etude.data.order import Task
from etude.ledger import rows
from etude.ledger.writer import Ledger, Noting

torch.set_num_threads(1)


def parts(pairs: int, steps: int) -> list[tuple[float, float]]:
    """Return the processor seconds per step without and with the ledger, of each pair."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    data = torch.utils.data.TensorDataset(torch.randn(4096, 32), torch.randint(0, 10, (4096,)))
    with tempfile.TemporaryDirectory() as folder:
        trainer = etude.Trainer(
            model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
            loss=torch.nn.CrossEntropyLoss(), folder=Path(folder) / "run", quiet=True,
        )  # fmt: skip
        times: list[float] = []
        began = 0.0

        @trainer.on("before_step")
        def switch(run: Run) -> None:
            nonlocal began
            if run.step % steps:
                return
            ledger: Any = run.history
            noting = next((hook for hook in run.hooks if isinstance(hook, Noting)), None)
            if noting is not None:
                ledger._wait()
            if began:
                times.append((time.process_time() - began) / steps)
            if noting is not None:
                run.hooks.remove(noting)
            else:
                run.hooks.add(Noting(ledger))
            began = time.process_time()

        trainer.fit(data, steps=(2 * pairs + 2) * steps + 1, batch_size=64, checkpoint=None)
    kept = times[2:]  # the first ones warm up
    return list(zip(kept[::2], kept[1::2], strict=True))


def interval(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, from the order of the values."""
    ordered, count = sorted(values), len(values)
    away = round(0.98 * count**0.5)
    return ordered[max(0, count // 2 - away)], ordered[min(count - 1, count // 2 + away)]


def alone(steps: int = 1000, tries: int = 40, batch: int = 64) -> None:
    """Print the processor time per step that notes and rows take, in the least of many tries."""
    order = torch.randperm(steps * batch)
    tasks = [Task(0, at, order[batch * at : batch * (at + 1)]) for at in range(steps)]
    losses = [torch.tensor(float(at)) for at in range(steps)]
    loader = SimpleNamespace(task=tasks[0])
    run: Any = Run(model=torch.nn.Identity(), update=lambda run, batch: None, loop=lambda run: None)
    run.data = {"train": loader}
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder, rows.FILE))

        def go(note: Any) -> None:
            for at in range(steps - 1):  # with one more the thread would begin
                run.step, run.loss, loader.task = at, losses[at], tasks[at]
                note(run)

        def noted() -> None:
            ledger._noted.clear()
            go(ledger.note)

        main = _least(noted, tries) - _least(lambda: go(lambda run: None), tries)
        thread = _least(lambda: ledger._add(1, tuple(losses), (None,) * steps, tuple(tasks)), tries)
        ledger._noted.clear()
        ledger.close()
    each = [part / steps * 1e6 for part in (main, thread)]
    print(f"thread of the run {each[0]:.2f} µs, thread of the ledger {each[1]:.2f} µs of processor time per step")
    print(f"together {sum(each) / 200:.2%} of a step of 200 µs (goal: 0.50%)")


def _least(work: Any, tries: int) -> float:
    times = []
    for _ in range(tries):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def growth(steps: int) -> None:
    """Note many steps, and print what grows."""
    loader = SimpleNamespace(task=Task(0, 0, torch.arange(64)))
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder, rows.FILE))
        run: Any = Run(model=torch.nn.Identity(), update=lambda run, batch: None, loop=lambda run: None)
        run.loss, run.data = torch.tensor(0.5), {"train": loader}
        for step in range(steps):
            run.step = step
            ledger.note(run)
            if (step + 1) % (steps // 4) == 0:
                ledger._wait()
                size, memory = Path(folder, rows.FILE).stat().st_size, _resident()
                print(f"{step + 1:>9} steps   file {size / 1e6:7.2f} MB   process {memory:7.1f} MB")
        ledger.close()


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--growth", type=int, default=0)
    parser.add_argument("--alone", action="store_true")
    args = parser.parse_args()
    if args.alone:
        alone()
        return
    if args.growth:
        growth(args.growth)
        return
    found = parts(args.pairs, args.steps)
    ratios = [with_it / without for without, with_it in found]
    low, high = interval(ratios)
    print(f"step without the ledger   {statistics.median(one for one, _ in found) * 1e6:7.1f} µs of processor time")
    print(f"with it / without it      {statistics.median(ratios):7.4f}   (95 %: {low:.4f} to {high:.4f})")


if __name__ == "__main__":
    main()
