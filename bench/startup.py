"""CPU time to start, against the bare interpreter and against ``import torch``.

python bench/startup.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFIG = str(ROOT / "examples/native/digits.yaml")
BY_HAND = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters())
torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,))).backward()
optimizer.step()
"""
RUN = "import etude, torch; from etude.core.loop import fit; m = torch.nn.Linear(2, 2); etude.Run(m, None, fit)"
COMMANDS = {
    "python": ["-c", "pass"],
    "etude --help": ["-m", "etude", "--help"],
    "etude check": ["-m", "etude", "check", CONFIG],
    "import torch": ["-c", "import torch"],
    "import etude and a Run": ["-c", RUN],
    "import torch and a step by hand": ["-c", BY_HAND],
    "etude train to its first step": ["-m", "etude", "train", CONFIG, "-q", "--fast-dev-run"],
}


def cpu(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(args.rounds):
        for name, words in COMMANDS.items():
            times[name].append(cpu(words))
    middle = {name: statistics.median(values) for name, values in times.items()}
    bare, torch_alone = middle["python"], middle["import torch"]
    for name, seconds in middle.items():
        print(
            f"{name:<34} {seconds:6.3f} s CPU   {seconds - bare:+.3f} s over python   {seconds / torch_alone:.2f} of import torch"
        )
    ratio = middle["etude train to its first step"] / middle["import torch and a step by hand"]
    print(f"\netude train to its first step is {ratio:.2f} of import torch and that step by hand")


if __name__ == "__main__":
    main()
