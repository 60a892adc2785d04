"""Batches per second of the digits: Étude's loader against torch's DataLoader taking sample by sample.

    python bench/data.py

The last line is the ratio. Both give the same shapes, shuffled, in the process of the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from torch.utils.data import DataLoader

from etude.data.digits import Digits
from etude.data.loader import Loader

BATCH = 64


class BySample:
    """The digits without their way to take whole batches, as most datasets are written."""

    def __init__(self) -> None:
        self.data = Digits("train")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> object:
        return self.data[index]


def rate(loader: Iterable[object], seconds: float = 1.0) -> float:
    """Batches per second, counted over whole epochs."""
    for _ in loader:
        pass
    batches, begin = 0, time.perf_counter()
    while (passed := time.perf_counter() - begin) < seconds:
        for _ in loader:
            batches += 1
    return batches / passed


def main() -> None:
    rows = {
        "torch DataLoader, sample by sample": DataLoader(BySample(), batch_size=BATCH, shuffle=True),  # type: ignore[arg-type,var-annotated]
        "etude Loader, sample by sample": Loader(BySample(), batch_size=BATCH, shuffle=True),
        "etude Loader, whole batches": Loader(Digits("train"), batch_size=BATCH, shuffle=True),
    }
    rates = {name: max(rate(loader) for _ in range(3)) for name, loader in rows.items()}
    for name, value in rates.items():
        print(f"{name:<36}{value:>12,.0f} batches/s")
    plain, _, whole = rates.values()
    print(f"ratio {whole / plain:.1f}")


if __name__ == "__main__":
    main()
