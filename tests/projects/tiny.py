"""Writes tiny data sets in the formats that the real projects read: CIFAR pickles, image folders, COCO annotations."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

#: A module for ``custom_imports``: files of ours have other checksums than the CIFAR that mmcls would download.
CIFAR_MODULE = """\
from mmcls.datasets import CIFAR10

CIFAR10.train_list = [["data_batch_1", None]]
CIFAR10.test_list = [["test_batch", None]]
CIFAR10.meta = {"filename": "batches.meta", "key": "label_names", "md5": None}
"""


def write_cifar(root: Path, *, train: int = 48, test: int = 16) -> None:
    """Write ``root/data/cifar10`` and the module ``tiny_cifar`` that makes mmcls accept it."""
    folder = root / "data" / "cifar10" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name, count in (("data_batch_1", train), ("test_batch", test)):
        labels = [index % 10 for index in range(count)]
        shades = np.array([[25 * label] for label in labels])
        data = np.clip(rng.normal(0, 20, (count, 3072)) + shades, 0, 255).astype(np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": data, "labels": labels}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {index}" for index in range(10)]}))
    (root / "tiny_cifar.py").write_text(CIFAR_MODULE)


def write_images(root: Path, *, classes: int = 3, train: int = 8, val: int = 4, size: int = 40) -> None:
    """Write ``root/train/CLASS/N.png`` and ``root/val/CLASS/N.png``: noise around one shade a class."""
    rng = np.random.default_rng(1)
    for split, count in (("train", train), ("val", val)):
        for label in range(classes):
            folder = root / split / f"c{label}"
            folder.mkdir(parents=True)
            for index in range(count):
                pixels = np.clip(rng.normal(60 + 60 * label, 30, (size, size, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{index}.png")


def write_coco(root: Path, *, images: int = 8, size: int = 64) -> None:
    """Write ``root/images`` and ``root/coco.json``: bright rectangles of two categories on noise."""
    rng = np.random.default_rng(2)
    (root / "images").mkdir(parents=True)
    entries, boxes = [], []
    for index in range(images):
        pixels = rng.integers(0, 80, (size, size, 3), dtype=np.uint8)
        x, y = (int(value) for value in rng.integers(2, size // 2 - 2, 2))
        width, height = (int(value) for value in rng.integers(size // 4, size // 2, 2))
        pixels[y : y + height, x : x + width, index % 2] = 250
        Image.fromarray(pixels).save(root / "images" / f"{index}.png")
        entries.append({"id": index, "file_name": f"{index}.png", "width": size, "height": size})
        corners = [x, y, x + width, y, x + width, y + height, x, y + height]
        boxes.append({
            "id": index + 1, "image_id": index, "category_id": index % 2 + 1, "bbox": [x, y, width, height],
            "area": width * height, "iscrowd": 0, "segmentation": [corners],
        })  # fmt: skip
    categories = [{"id": 1, "name": "red"}, {"id": 2, "name": "green"}]
    (root / "coco.json").write_text(json.dumps({"images": entries, "annotations": boxes, "categories": categories}))
