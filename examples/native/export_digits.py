"""Train, take the best checkpoint, export it, and use it without Étude.  python examples/native/export_digits.py"""

from __future__ import annotations

from pathlib import Path

import torch

import etude
from etude.data import Digits


def main(folder: str = "runs/export", epochs: int = 5) -> float:
    config = Path(__file__).with_name("digits.yaml")
    etude.train(config, [f"train.epochs={epochs}"], options=etude.Options(folder=folder, quiet=True))
    print(etude.export(folder, f"{folder}/digits.pt2", best=True))
    program = torch.export.load(f"{folder}/digits.pt2").module()
    images, labels = Digits("val").fetch(torch.arange(100))
    accuracy = float((program(images).argmax(1) == labels).double().mean())
    print(f"{accuracy:.1%} of 100 digits")
    return accuracy


if __name__ == "__main__":
    main()
