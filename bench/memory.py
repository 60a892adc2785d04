"""Peak memory of a run against the same training written by hand, each in a process of its own.

    python bench/memory.py [--rounds 5]

Both train the digits with a model of some millions of numbers: AdamW, clipping, an evaluation per epoch. ``ru_maxrss`` of
the child is what the operating system counted; the last line is the ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, report, table

BY_HAND = """
import torch
from torch import nn
from etude.data.datasets.digits import Digits
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_of = nn.CrossEntropyLoss()
train = torch.utils.data.DataLoader(Digits("train"), batch_size=64, shuffle=True)
val = torch.utils.data.DataLoader(Digits("val"), batch_size=256)
for epoch in range(3):
    model.train()
    for inputs, target in train:
        loss = loss_of(model(inputs), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum(int((model(inputs).argmax(1) == target).sum()) for inputs, target in val)
"""
CONFIG = """
model: {type: MLP, sizes: [64, 1024, 1024, 10]}
loss: CrossEntropyLoss
data:
  train: {dataset: {type: Digits, split: train}, batch_size: 64}
  val: {dataset: {type: Digits, split: val}, batch_size: 256}
optim: {type: AdamW, lr: 1e-3, clip_norm: 1.0}
train: {epochs: 3}
metrics: [Accuracy]
checkpoint: false
"""
SAVING = CONFIG.replace("checkpoint: false", "checkpoint: {every: 1ep}")


def peak(words: list[str], folder: str) -> float:
    """Megabytes that the child had in memory at most."""
    child = subprocess.Popen(
        [sys.executable, *words], cwd=folder, stderr=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, words
    return usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "c.yaml").write_text(CONFIG)
        Path(folder, "saving.yaml").write_text(SAVING)
        contestants = {
            "import torch": ["-c", "import torch"],
            "by hand": ["-c", BY_HAND],
            "etude train": ["-m", "etude", "train", "c.yaml", "-q"],
            "etude train, saving every epoch": ["-m", "etude", "train", "saving.yaml", "-q"],
        }
        peaks: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(args.rounds):
            for name, words in contestants.items():
                peaks[name].append(peak(words, folder))
    middle = {name: statistics.median(values) for name, values in peaks.items()}
    rows = [(name, f"{value:.0f}", f"{value / middle['by hand']:.3f}") for name, value in middle.items()]
    print(table(rows, ("run", "MB at most", "÷ by hand")))
    print()
    report(
        [Ratio("memory: peak of etude train ÷ loop by hand", middle["etude train"] / middle["by hand"], at_most=1.05)],
        args.json,
    )


if __name__ == "__main__":
    main()
