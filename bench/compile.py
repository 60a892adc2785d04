"""Time of a step with `train.compile` over one without, and what compiling takes: at the first start and at the next.

    python bench/compile.py [--json FILE] [MODEL ...]

Three models on the CPU, in one thread: an MLP, a ConvNet and a small transformer, each trained by `etude train` as a process
of its own. A step counts from one `after_step` to the next, best of all, in CPU time, which other work disturbs less; the
first step shows what compiling takes by the clock. The second start finds what the first has left in torch's cache, as a resume does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, report, table

PARTS = """
import json, time
import torch
from etude import Hook
from torch import nn
from torch.utils.data import TensorDataset


def mlp():
    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(256, 10))


def convnet():
    widths = [3, 16, 32, 64]
    blocks = [
        layer
        for before, width in zip(widths, widths[1:])
        for layer in (nn.Conv2d(before, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.SiLU())
    ]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.letters = nn.Embedding(27, 64)
        self.blocks, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 10)

    def forward(self, text):
        return self.out(self.blocks(self.letters(text)).mean(1))


def data(shape, kinds=0, count=64 * 60):
    torch.manual_seed(0)
    inputs = torch.randint(kinds, (count, *shape)) if kinds else torch.randn(count, *shape)
    return TensorDataset(inputs, torch.randint(10, (count,)))


class Clock(Hook):
    def __init__(self):
        self.clock, self.work = [], []

    def before_train(self, run):
        self.after_step(run)

    def after_step(self, run):
        self.clock.append(time.perf_counter())
        self.work.append(time.process_time())

    def after_train(self, run):
        steps = [after - before for before, after in zip(self.work[1:], self.work[2:])]
        json.dump({"first": self.clock[1] - self.clock[0], "step": min(steps)}, open("times.json", "w"))
"""
MODELS = {
    "MLP": ("parts.mlp", "{type: parts.data, shape: [256]}"),
    "ConvNet": ("parts.convnet", "{type: parts.data, shape: [3, 32, 32]}"),
    "transformer": ("parts.Transformer", "{type: parts.data, shape: [32], kinds: 27}"),
}
CONFIG = """
imports: [parts.py]
model: {model}
loss: CrossEntropyLoss
data: {{train: {{dataset: {data}, batch_size: 64}}}}
optim: {{type: AdamW, lr: 1e-3}}
train: {{epochs: 1, threads: 1, compile: {compile}}}
hooks: [parts.Clock]
checkpoint: false
"""


def trained(folder: Path, name: str, *, compiled: bool) -> dict[str, float]:
    """Seconds of the first step and of the best one."""
    model, data = MODELS[name]
    (folder / "config.yaml").write_text(CONFIG.format(model=model, data=data, compile=str(compiled).lower()))
    command = [sys.executable, "-m", "etude", "train", "config.yaml", "--folder", "run", "--restart"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache-{name}")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    times: dict[str, float] = json.loads((folder / "times.json").read_text())
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", choices=[[], *MODELS], default=[])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows, found = [], []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "parts.py").write_text(PARTS)
        for name in args.models or MODELS:
            plain, cold, warm = (trained(folder, name, compiled=number > 0) for number in range(3))
            step = min(cold["step"], warm["step"])
            values = plain["step"] * 1e3, step * 1e3, cold["first"], warm["first"]
            rows.append((name, *(f"{value:.2f}" for value in values)))
            note = f"{cold['first']:.1f} s to compile, {warm['first']:.1f} s at the next start"
            found.append(Ratio(f"compile: step, compiled ÷ eager, {name}", step / plain["step"], note=note))
    heads = ("model", "eager, ms CPU a step", "compiled, ms", "first step, s", "first step of the next start, s")
    print(table(rows, heads) + "\n")
    report(found, args.json)


if __name__ == "__main__":
    main()
