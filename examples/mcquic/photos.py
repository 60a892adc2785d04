"""Trains the compressor on scikit-learn's two photographs and measures it beside JPEG at the same rate.

    python examples/mcquic/photos.py [--epochs 80] [--out out]

Writes the photographs, their reconstructions and JPEG's as pictures, and prints bits per pixel and PSNR.
"""

from __future__ import annotations

import argparse
import io
import math
import os
from pathlib import Path

import numpy as np
import torch
from compressor import Compressor
from PIL import Image
from sklearn.datasets import load_sample_images

from etude.cli import main as etude
from etude_mcquic.files import Saver
from etude_mcquic.live.data.images import open_images, to_bytes
from etude_mcquic.live.validate import measure

CONFIG = Path(__file__).with_name("photos.yaml").resolve()
PARAMS = {"channel": 32, "m": 2, "k": [256, 128]}
#: Training sees so many tiles along each side of a photograph, of this size; an epoch is then more than one step.
TILES, TILE = 6, 64


def psnr(one: np.ndarray, other: np.ndarray) -> float:
    error = ((one.astype(float) - other.astype(float)) ** 2).mean()
    return 10 * math.log10(255**2 / error)


def jpeg_at(picture: np.ndarray, bpp: float) -> tuple[np.ndarray, float, int]:
    """The best JPEG that takes no more than ``bpp`` bits per pixel, or the smallest there is."""
    best: tuple[np.ndarray, float, int] | None = None
    for quality in range(1, 96):
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
        rate = 8 * buffer.tell() / (picture.shape[0] * picture.shape[1])
        if best is not None and rate > bpp:
            break
        best = np.asarray(Image.open(buffer)), rate, quality
    assert best is not None
    return best


def main(epochs: int = 80, out: str = "out", side: int = 256) -> list[tuple[str, float, float, float, float]]:
    folder = Path(out)
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    (folder / "tiles").mkdir(exist_ok=True)
    for image, name in zip(load_sample_images().images, ("china", "flower"), strict=True):
        part = image[100 : 100 + side, 150 : 150 + side]
        Image.fromarray(part).save(folder / "photos" / f"{name}.png")
        for number, (top, left) in enumerate(np.ndindex(TILES, TILES)):
            row, column = top * (side - TILE) // (TILES - 1), left * (side - TILE) // (TILES - 1)
            Image.fromarray(part[row : row + TILE, column : column + TILE]).save(
                folder / "tiles" / f"{name}{number:02}.png"
            )
    here = os.getcwd()
    os.chdir(folder)
    try:
        code = etude(["train", str(CONFIG), "-q", f"train.epoch={epochs}", f"train.valFreq={max(1, epochs // 6)}"])
        assert code == 0, code
    finally:
        os.chdir(here)
    model = Compressor(**PARAMS).eval()
    state = Saver.load(folder / "saved" / "latest" / "last.ckpt")["trainer"]["_model"]
    of_model = "module._compressor."
    model.load_state_dict({name.removeprefix(of_model): value for name, value in state.items() if of_model in name})
    rows = []
    images = open_images(folder / "photos")
    for path, image in zip(images.paths, (images[i] for i in range(len(images))), strict=True):
        with torch.no_grad():
            ours = measure(model, image.unsqueeze(0))
        original = to_bytes(image)
        theirs, rate, quality = jpeg_at(original, ours["BPP"])
        Image.fromarray(to_bytes(ours["picture"][0])).save(folder / f"{path.stem}-etude.png")
        Image.fromarray(theirs).save(folder / f"{path.stem}-jpeg.png")
        rows.append((path.stem, ours["BPP"], ours["PSNR"], rate, psnr(original, theirs)))
        print(f"{path.stem:<8} etude {ours['BPP']:.3f} bpp {ours['PSNR']:.2f} dB   "
              f"JPEG (quality {quality}) {rate:.3f} bpp {rows[-1][4]:.2f} dB")  # fmt: skip
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    main(args.epochs, args.out)
