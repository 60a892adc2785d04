"""CPU time to start, against the bare interpreter and against ``import torch``.

python bench/startup.py [--rounds 5] [--json FILE]

Modules are compiled once before, as they are on any second start.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _common import Ratio, report

ROOT = Path(__file__).parent.parent
CONFIG = str(ROOT / "examples/native/digits.yaml")
BY_HAND = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters())
torch.nn.functional.cross_entropy(model(torch.randn(64, 64)), torch.randint(10, (64,))).backward()
optimizer.step()
"""
#: A config of each dialect.
CHECKED = {
    "native": "native/digits.yaml",
    "mmcv1": "mmcv1/digits.py",
    "mmengine": "mmengine/simclr_lars.py",
    "libai": "libai/char_transformer.py",
    "mcquic": "mcquic/photos.yaml",
}
RUN = "import etude; etude.Trainer"
COMMANDS = {
    "python": ["-c", "pass"],
    "etude --help": ["-m", "etude", "--help"],
    **{
        f"etude check, {name}": ["-m", "etude", "check", str(ROOT / "examples" / path)]
        for name, path in CHECKED.items()
    },
    "import torch": ["-c", "import torch"],
    "import etude and Trainer": ["-c", RUN],
    "import torch and a step by hand": ["-c", BY_HAND],
    "etude train to its first step": ["-m", "etude", "train", CONFIG, "-q", "--fast-dev-run"],
}


def cpu(words: list[str], cache: str) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = cache
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, cwd=ROOT, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as cache:
        for number in range(args.rounds + 1):
            for name, words in COMMANDS.items():
                seconds = cpu(words, cache)
                if number:
                    times[name].append(seconds)
    middle = {name: statistics.median(values) for name, values in times.items()}
    bare, torch_alone = middle["python"], middle["import torch"]
    for name, seconds in middle.items():
        print(
            f"{name:<34} {seconds:6.3f} s CPU   {seconds - bare:+.3f} s over python   {seconds / torch_alone:.2f} of import torch"
        )
    ratio = middle["etude train to its first step"] / middle["import torch and a step by hand"]
    importing = middle["import etude and Trainer"] / torch_alone
    print()
    report(
        [
            Ratio("start: import etude and Trainer ÷ import torch", importing, at_most=1.10),
            Ratio("start: etude train to its first step ÷ the same by hand", ratio, at_most=1.10),
            *(
                Ratio(f"start: seconds of CPU for etude check, {name}", middle[f"etude check, {name}"], at_most=0.15)
                for name in CHECKED
            ),
        ],
        args.json,
    )


if __name__ == "__main__":
    main()
