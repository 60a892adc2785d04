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


def write_people(root: Path, *, people: int = 8, pictures: int = 2) -> None:
    """Write ``root/imgs`` and ``root/meta/*.txt``: pictures of people, each of a shade of their own."""
    rng = np.random.default_rng(3)
    (root / "imgs").mkdir(parents=True)
    (root / "meta").mkdir()
    lines = []
    for person in range(people):
        for index in range(pictures):
            pixels = np.clip(rng.normal(30 * person, 20, (64, 32, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / "imgs" / f"{person}_{index}.png")
            lines.append(f"{person}_{index}.png {person}\n")
    for name in ("train_80.txt", "val_20.txt"):
        (root / "meta" / name).write_text("".join(lines))


def write_videos(root: Path, *, frames: int = 4, size: int = 64) -> None:
    """Write ``root/Data/VID`` and ``root/annotations``: a bright rectangle that moves over noise."""
    rng = np.random.default_rng(4)
    (root / "annotations").mkdir(parents=True)
    categories = [{"id": 1, "name": "airplane"}, {"id": 2, "name": "antelope"}]
    for split, videos in (("train", 2), ("val", 1)):
        images, boxes = [], []
        for video in range(videos):
            (root / "Data/VID" / f"{split}{video}").mkdir(parents=True)
            for frame in range(frames):
                name, index = f"{split}{video}/{frame:06d}.png", len(images) + 1
                pixels = rng.integers(0, 80, (size, size, 3), dtype=np.uint8)
                pixels[10:40, 4 * frame : 4 * frame + 30, video] = 250
                Image.fromarray(pixels).save(root / "Data/VID" / name)
                images.append({
                    "id": index, "file_name": name, "width": size, "height": size, "video_id": video + 1,
                    "frame_id": frame, "is_vid_train_frame": split == "train",
                })  # fmt: skip
                boxes.append({
                    "id": index, "image_id": index, "video_id": video + 1, "category_id": video + 1,
                    "instance_id": video + 1, "bbox": [4 * frame, 10, 30, 30], "area": 900, "iscrowd": 0,
                    "occluded": False, "generated": False,
                })  # fmt: skip
        content = {
            "videos": [{"id": video + 1, "name": f"{split}{video}"} for video in range(videos)],
            "images": images, "annotations": boxes, "categories": categories,
        }  # fmt: skip
        (root / "annotations" / f"imagenet_vid_{split}.json").write_text(json.dumps(content))


def write_track(root: Path, *, frames: int = 3, size: int = 64) -> None:
    """Write one video of LaSOT: ``root/annotations/lasot_test_infos.txt`` and ``root/LaSOTBenchmark/cup/cup-1``."""
    rng, folder = np.random.default_rng(5), root / "LaSOTBenchmark/cup/cup-1"
    (folder / "img").mkdir(parents=True)
    (root / "annotations").mkdir()
    for frame in range(frames):
        pixels = rng.integers(0, 80, (size, size, 3), dtype=np.uint8)
        pixels[10:40, 4 * frame : 4 * frame + 30] = 250
        Image.fromarray(pixels).save(folder / "img" / f"{frame + 1:08d}.jpg")
    (folder / "groundtruth.txt").write_text("".join(f"{4 * frame},10,30,30\n" for frame in range(frames)))
    for name in ("full_occlusion", "out_of_view"):
        (folder / f"{name}.txt").write_text(",".join("0" * frames) + "\n")
    line = f"cup/cup-1/img,cup/cup-1/groundtruth.txt,1,{frames}"
    (root / "annotations/lasot_test_infos.txt").write_text(f"a comment\n{line}\n")


def write_scenes(root: Path) -> None:
    """Write ``root/img`` and ``root/ann``: four pictures of noise, each with a class for every pixel."""
    rng = np.random.default_rng(0)
    for folder, shape, most in (("img", (48, 64, 3), 255), ("ann", (48, 64), 4)):
        (root / folder).mkdir(parents=True)
        for index in range(4):
            Image.fromarray(rng.integers(0, most, shape, dtype=np.uint8)).save(root / folder / f"{index}.png")
