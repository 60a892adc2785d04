"""Search a learning rate and a width, and draw the results.  python examples/native/sweep_digits.py"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFIG = Path(__file__).with_name("digits.yaml")


def main(folder: str = "runs/digits/sweep", trials: int = 8, epochs: int = 4) -> str:
    space = ["optim.lr=1e-4..1e-1:log", "model.sizes=[64, 32, 10],[64, 128, 10]", f"train.epochs={epochs}"]
    options = ["--trials", str(trials), "--jobs", "2", "--patience", "5", "--folder", folder]
    etude("sweep", str(CONFIG), *space, *options)
    page = f"{folder}/sweep.html"
    etude("report", folder, "-o", page)
    return page


def etude(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "etude", *words], check=True)


if __name__ == "__main__":
    main()
