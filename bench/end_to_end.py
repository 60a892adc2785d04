"""Wall time, CPU time and peak memory of whole trainings: `etude train` over a careful script by hand.

    python bench/end_to_end.py [--rounds 3] [--images FOLDER] [--json FILE] [JOB ...]

Three jobs, each with an evaluation after every epoch, a log and a checkpoint per epoch:
``digits`` (an MLP on the built-in digits), ``convnet`` (Fashion-MNIST, mirrored and shifted at random by two data workers)
and ``text`` (a small transformer that predicts the next letter). Fashion-MNIST is read from the files of Debian's package
``dataset-fashion-mnist``, or from FOLDER; without them, images of the same sizes are made up. A round runs both sides as
processes of their own, from the start of the interpreter; ratios are those of the best rounds.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, report

PARTS = """
import numpy as np
import torch
from pathlib import Path
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset


def mlp():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 7 * 7, 10),
    )


class Transformer(nn.Module):
    def __init__(self, letters=27, width=64, length=32):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(width, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, text):
        hidden = self.letters(text) + self.places.weight
        return self.out(self.blocks(hidden, mask=self.mask, is_causal=True)).transpose(1, 2)


def letters(split):
    chain = torch.Generator().manual_seed(0)
    likely = torch.rand(27, 27, generator=chain).pow(8)
    text = torch.empty(40_000, dtype=torch.long)
    text[0] = 0
    for place in range(1, len(text)):
        text[place] = torch.multinomial(likely[text[place - 1]], 1, generator=chain)
    text = text[:32_000] if split == "train" else text[32_000:]
    windows = text.unfold(0, 33, 8)
    return TensorDataset(windows[:, :-1].contiguous(), windows[:, 1:].contiguous())


class Images(Dataset):
    def __init__(self, folder, prefix, augment):
        self.images = self.read(Path(folder) / f"{prefix}-images-idx3-ubyte")
        self.labels, self.augment = self.read(Path(folder) / f"{prefix}-labels-idx1-ubyte").long(), augment

    @staticmethod
    def read(path):
        data = path.read_bytes()
        shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
        return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape).copy())

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index].float().div_(255.0).unsqueeze(0)
        if self.augment:
            if torch.rand(()).item() < 0.5:
                image = image.flip(-1)
            down, right = torch.randint(5, ()).item(), torch.randint(5, ()).item()
            image = functional.pad(image, [2] * 4)[..., down : down + 28, right : right + 28]
        return image, self.labels[index]


def images(folder, prefix, augment=False):
    return Images(folder, prefix, augment)
"""
#: Name → model, training data, validation data, workers, optimizer, learning rate, epochs.
JOBS = {
    "digits": ("mlp", "{type: Digits, split: train}", "{type: Digits, split: val}", 0, "AdamW", 1e-3, 200),
    "convnet": (
        "convnet", "{type: parts.images, folder: ., prefix: train, augment: true}",
        "{type: parts.images, folder: ., prefix: t10k}", 2, "SGD", 0.05, 2,
    ),
    "text": ("Transformer", "{type: parts.letters, split: train}", "{type: parts.letters, split: val}", 0, "AdamW", 1e-3, 10),
}  # fmt: skip
CONFIG = """
imports: [parts.py]
model: parts.{model}
loss: CrossEntropyLoss
data:
  train: {{dataset: {train}, batch_size: 64, workers: {workers}}}
  val: {{dataset: {val}, batch_size: 256}}
optim: {{type: {optimizer}, lr: {lr}}}
train: {{epochs: {epochs}, threads: 1, seed: 0}}
metrics: [Accuracy]
checkpoint: {{every: 1ep, keep: 1}}
"""
SCRIPT = """
import random
import numpy as np, torch
from torch.nn import functional
from torch.utils.data import DataLoader
import parts

torch.set_num_threads(1)
random.seed(0), np.random.seed(0), torch.manual_seed(0)
if {name!r} == "digits":
    from etude.data import Digits
    train, val = Digits("train"), Digits("val")
elif {name!r} == "convnet":
    train, val = parts.images(".", "train", augment=True), parts.images(".", "t10k")
else:
    train, val = parts.letters("train"), parts.letters("val")
model = parts.{model}()
optimizer = torch.optim.{optimizer}(model.parameters(), lr={lr}, fused=True)
loader = DataLoader(train, batch_size=64, shuffle=True, num_workers={workers}, persistent_workers={workers} > 0)
val_loader = DataLoader(val, batch_size=256)
with open("log.txt", "w") as log:
    for epoch in range({epochs}):
        model.train()
        losses = []
        for step, (inputs, targets) in enumerate(loader):
            loss = functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            if step % 50 == 49:
                print(epoch, step, torch.stack(losses).mean().item(), file=log, flush=True)
                losses.clear()
        model.eval()
        right = count = 0
        with torch.no_grad():
            for inputs, targets in val_loader:
                right += int((model(inputs).argmax(1) == targets).sum())
                count += targets.numel()
        print(f"epoch {{epoch + 1}} accuracy {{right / count:.4f}}")
        torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}, "weights.pt")
"""


def write_images(folder: Path, found: Path, samples: int = 60_000) -> None:
    """The files of Fashion-MNIST, unpacked; or else noisy pictures of ten random patterns in such files."""
    packed = sorted(found.glob("*-ubyte.gz"))
    for file in packed:
        (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    if packed:
        return
    print(f"no files of Fashion-MNIST in {found}: the images are made up", file=sys.stderr)
    numbers = np.random.default_rng(0)
    patterns = numbers.integers(0, 255, (10, 7, 7)).repeat(4, 1).repeat(4, 2)
    for prefix, count in (("train", samples), ("t10k", samples // 6)):
        labels = numbers.integers(0, 10, count, dtype=np.uint8)
        images = (0.3 * patterns[labels] + 0.7 * numbers.integers(0, 255, (count, 28, 28))).astype(np.uint8)
        for name, array in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
            (folder / name).write_bytes(head + array.tobytes())


def timed(command: list[str], folder: Path) -> tuple[float, float, float, float]:
    """Seconds on the clock, seconds of CPU with children, peak memory in MiB, and the last accuracy it printed."""
    begin = time.perf_counter()
    with (folder / "out.txt").open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        _, status, usage = os.wait4(process.pid, 0)
    text = (folder / "out.txt").read_text()
    if status:
        raise SystemExit(text)
    accuracy = float(re.findall(r"accuracy\D{0,3}([01]\.\d+)", text)[-1])
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, accuracy


def measure(name: str, folder: Path, rounds: int) -> list[Ratio]:
    """Both sides of one job, in turn."""
    model, train, val, workers, optimizer, lr, epochs = JOBS[name]
    words = {
        "name": name, "model": model, "train": train, "val": val, "workers": workers, "optimizer": optimizer, "lr": lr,
        "epochs": epochs,
    }  # fmt: skip
    (folder / "config.yaml").write_text(CONFIG.format(**words))
    (folder / "script.py").write_text(SCRIPT.format(**words))
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(
            timed([sys.executable, "-m", "etude", "train", "config.yaml", "--folder", "run", "--restart"], folder)
        )
        theirs.append(timed([sys.executable, "script.py"], folder))
    best = [[min(column) for column in zip(*rows, strict=True)] for rows in (ours, theirs)]
    wall, work, memory, _ = (a / b for a, b in zip(*best, strict=True))
    seconds = f"{best[0][0]:.1f} s and {best[1][0]:.1f} s, accuracy {ours[0][3]:.3f} and {theirs[0][3]:.3f}"
    return [
        Ratio(f"end to end: {name}, wall time ÷ script by hand", wall, at_most=1.05, note=seconds),
        Ratio(f"end to end: {name}, CPU time ÷ script by hand", work),
        Ratio(f"end to end: {name}, peak memory ÷ script by hand", memory, at_most=1.05),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", choices=[[], *JOBS], default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=Path, default=Path("/usr/share/datasets/fashion-mnist"), metavar="FOLDER")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found: list[Ratio] = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if not args.jobs or "convnet" in args.jobs:
            write_images(folder, args.images)
        (folder / "parts.py").write_text(PARTS)
        for name in args.jobs or JOBS:
            found += measure(name, folder, args.rounds)
    report(found, args.json)


if __name__ == "__main__":
    main()
