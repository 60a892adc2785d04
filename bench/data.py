"""Batches per second of Étude's Loader over torch's DataLoader: the same dataset, batches of 64, shuffled.

    python bench/data.py [--rounds 5] [--seconds 0.5] [--json FILE] [KIND ...]      (for example: stream memory)

Rows are kinds of samples. Both loaders take turns, an epoch each; a ratio above 1 means that Étude is faster. Beside the
ratio of the best rounds stands that of the CPU time of all processes, which a busy machine disturbs less.

At the end: what it takes to seed each generator for every sample, its first draw included, beside the augmented sample; and
the same within an epoch, by a loop that does nothing else. No loader that seeds each sample can be faster than that loop.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, report, table

from etude.data import seeds
from etude.data.collate import stack
from etude.data.datasets.digits import Digits
from etude.data.loader import Loader

BATCH, SAMPLES = 64, 2048


class Memory:
    """Tensors taken from memory one by one."""

    def __init__(self) -> None:
        self.images, self.labels = torch.randn(SAMPLES, 3, 32, 32), torch.randint(10, (SAMPLES,)).tolist()

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index], self.labels[index]


class Augmented(Memory):
    """Draws from Python's generator, numpy's and torch's."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = super().__getitem__(index)
        if random.random() < 0.5:
            image = image.flip(-1)
        image = image.roll(int(np.random.randint(-2, 3)), -1)
        return image + 0.1 * torch.randn(image.shape), label


class TorchAugmented(Memory):
    """Draws from torch's generator alone."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, label = super().__getitem__(index)
        return image + 0.1 * torch.randn(image.shape), label


class Costly(Memory):
    """0.1 ms of CPU time a sample."""

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        end = time.thread_time() + 1e-4
        while time.thread_time() < end:
            pass
        return super().__getitem__(index)


class Files:
    """Images of 96 × 96 decoded by Pillow, flipped at random."""

    def __init__(self, folder: Path, count: int = 512) -> None:
        self.paths = [folder / f"{number}.jpg" for number in range(count)]
        numbers = np.random.default_rng(0)
        for path in self.paths:
            Image.fromarray(numbers.integers(0, 255, (96, 96, 3), dtype=np.uint8)).save(path)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        with Image.open(self.paths[index]) as image:
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return pixels.flip(-1) if torch.rand(()) < 0.5 else pixels, index


class Stream(IterableDataset[Tensor]):
    """Rows that come one after another."""

    def __init__(self) -> None:
        self.rows = torch.randn(SAMPLES, 256)

    def __iter__(self) -> Iterator[Tensor]:
        yield from self.rows


def cpu() -> float:
    """Seconds of CPU time of this process and of its children that live."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if os.getpid() in (int(folder.name), int(fields[1])):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rate(loader: Iterable[Any], seconds: float) -> tuple[float, float]:
    """Batches per second, and per second of CPU time, over whole epochs."""
    batches, spent, begin = 0, cpu(), time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        for _ in loader:
            batches += 1
    return batches / passed, batches / max(1e-9, cpu() - spent)


def compare(name: str, dataset: Any, workers: int, *, rounds: int, seconds: float) -> Ratio:
    stream = isinstance(dataset, IterableDataset)
    theirs = DataLoader(
        dataset,
        batch_size=BATCH,
        shuffle=None if stream else True,
        num_workers=min(workers, 1) if stream else workers,
        persistent_workers=workers > 0,
    )
    ours = Loader(dataset, batch_size=BATCH, shuffle=not stream, workers=workers)
    pairs = []
    for number in range(rounds + 1):
        pair = rate(ours, seconds), rate(theirs, seconds)
        if number:
            pairs.append(pair)
    ours.close()
    best = max(a for (a, _), _ in pairs) / max(b for _, (b, _) in pairs)
    work = max(a for (_, a), _ in pairs) / max(b for _, (_, b) in pairs)
    return Ratio(
        f"data: rate ÷ DataLoader's, {name}, {workers} workers", best, at_least=1.0, note=f"{work:.2f} by CPU time"
    )


def microseconds(work: Callable[[int], object], count: int = 64, rounds: int = 200) -> float:
    """CPU time of one call, best of rounds of ``count`` calls."""
    best = float("inf")
    for _ in range(rounds):
        begin = time.thread_time_ns()
        for number in range(count):
            work(number)
        best = min(best, time.thread_time_ns() - begin)
    return best / count / 1000


def epoch(dataset: Any, seeders: tuple[Callable[[int], None], ...], number: int) -> float:
    """Microseconds of CPU a sample of an epoch in a bare loop: shuffled, seeded by ``seeders``, stacked."""
    order, begin = torch.randperm(SAMPLES).tolist(), time.thread_time_ns()
    for start in range(0, SAMPLES, BATCH):
        chosen, samples = order[start : start + BATCH], []
        for index, seed in zip(chosen, seeds.mix_each((0, number), chosen), strict=True):
            for seeder in seeders:
                seeder(seed)
            samples.append(dataset[index])
        stack(samples)
    return (time.thread_time_ns() - begin) / SAMPLES / 1000


def seeding() -> str:
    """What a sample that draws from all three generators takes, and what it takes to seed them for it."""
    draws: dict[str, tuple[Callable[[int], None], Callable[[], object]]] = {
        "Python's": (seeds.seed_python, random.random),
        "numpy's": (seeds.seed_numpy, lambda: np.random.randint(-2, 3)),
        "torch's": (seeds.seed_torch, lambda: torch.rand(())),
    }
    dataset = Augmented()
    rows = [("an augmented sample, nothing seeded", f"{microseconds(dataset.__getitem__):.1f}")]
    for name, (seed, draw) in draws.items():
        seeded = microseconds(lambda number, seed=seed, draw=draw: (seed(number << 40), draw()))  # type: ignore[misc]
        plain = microseconds(lambda number, draw=draw: draw())  # type: ignore[misc]
        rows.append((f"seeding {name} generator", f"{seeded - plain:.1f}"))
    seeders = tuple(seed for seed, _ in draws.values())
    pairs = [(epoch(dataset, (), number), epoch(dataset, seeders, number)) for number in range(11)]
    plain, seeded = (statistics.median(column) for column in zip(*pairs, strict=True))
    rows += [("a sample of an epoch in a bare loop", f"{plain:.1f}"), ("the same, all seeded", f"{seeded:.1f}")]
    return table(rows, ("what", "µs"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="rows whose name contains one of these; all without")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    options = {"rounds": args.rounds, "seconds": args.seconds}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            "tensors from memory": Memory(),
            "augmented by three generators": Augmented(),
            "augmented by torch": TorchAugmented(),
            "0.1 ms a sample": Costly(),
            "JPEG files": Files(Path(folder)),
            "a stream": Stream(),
        }
        for name, dataset in kinds.items():
            if args.kinds and not any(word in name for word in args.kinds):
                continue
            found += [compare(name, dataset, workers, **options) for workers in (0, 2)]
    if not args.kinds:
        whole, single = Loader(Digits("train"), batch_size=BATCH, shuffle=True), Digits("train")
        theirs = DataLoader(single, batch_size=BATCH, shuffle=True)  # type: ignore[arg-type,var-annotated]
        fast = max(rate(whole, args.seconds)[0] for _ in range(args.rounds))
        slow = max(rate(theirs, args.seconds)[0] for _ in range(args.rounds))
        found.append(Ratio("data: rate ÷ DataLoader's, whole batches from memory", fast / slow, at_least=20.0))
    report(found, args.json)
    print("\n" + seeding())


if __name__ == "__main__":
    main()
