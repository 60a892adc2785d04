"""``mcquic validate``: measures a trained model on pictures, and exports it for ``mcquic --local``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.checkpoint.formats.torch_file import save_file
from etude.errors import UserError, printable
from etude_mcquic.config import Config
from etude_mcquic.live.coding import load_model, write_picture
from etude_mcquic.live.data.images import Folder, open_images
from etude_mcquic.live.data.transforms import DeTransform, getEvalTransform
from etude_mcquic.live.formats import VERSION, Decibel, hashOfFile
from etude_mcquic.live.model.losses import msSSIM

#: The picture that speed is measured with: its height and width.
_SPEED = (768, 512)


@torch.inference_mode()
def run(path: Path, images: Path, output: Path | None, export: Path | None) -> list[str]:
    """Measure all pictures, write the restored ones and the exported model, and return what to say."""
    for folder, what in ((output, "OUTPUT"), (export, "--export")):
        if folder is not None and not folder.is_dir():
            raise UserError(f"{what} {printable(str(folder))} is no folder; make it first")
    model, config = load_model(path)
    found = open_images(images, transform=getEvalTransform())
    names = [one.stem for one in found.paths] if isinstance(found, Folder) else [str(i) for i in range(len(found))]
    rows, counts, pixels = [], Counts(config), 0
    for index, name in enumerate(names):
        image = found[index].unsqueeze(0)
        codes, binaries, headers = model.compress(image)
        wanted, restored = DeTransform()(image), DeTransform()(model.decompress(binaries, headers))
        area = image.shape[-2] * image.shape[-1]
        rows.append(_measured(wanted.float(), restored.float()) | {"BPP": 8 * sum(map(len, binaries[0])) / area})
        counts.add(codes)
        pixels += area
        if output is not None:
            write_picture(restored[0], output / f"{name}.png")
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    said = [f"MsSSIM: {means['MsSSIM']:.2f} dB", f"PSNR: {means['PSNR']:.2f} dB", f"BPP: {means['BPP']:.4f}"]
    said += [f"IdealBPP: {counts.bits() / pixels:.4f}", _speed(model)]
    return [*said, f"Saved at {_export(model, config, export)}" if export is not None else "Skip saving model."]


def _measured(wanted: Tensor, restored: Tensor) -> dict[str, float]:
    error = ((wanted - restored) ** 2).mean((1, 2, 3))
    similarity = msSSIM(wanted, restored, dataRange=255.0).mean(1)
    return {"MsSSIM": float(Decibel(1.0)(1 - similarity)), "PSNR": float(10 * (255.0**2 / error).log10())}


class Counts:
    """How often each code word was used, over all pictures: what an ideal coder would need."""

    def __init__(self, config: Config) -> None:
        books, sizes = int(config.Model.Params["m"]), config.Model.Params["k"]
        self._used = [torch.zeros(books, size) for size in sizes]

    def add(self, codes: list[Tensor]) -> None:
        for used, level in zip(self._used, codes, strict=True):
            for book in range(len(used)):
                used[book] += torch.bincount(level[:, book].flatten(), minlength=used.shape[1])

    def bits(self) -> float:
        """Return the entropy of all codes."""
        total = 0.0
        for used in self._used:
            share = used / used.sum(1, keepdim=True)
            total += float((-(share * share.clamp(min=1e-30).log2()).sum(1) * used.sum(1)).sum())
        return total


def _speed(model: Any) -> str:
    """Return the throughput for one picture, in millions of pixels per second, after one that is not counted."""
    image = torch.rand(1, 3, *_SPEED) * 2 - 1
    _, files, headers = model.compress(image)
    model.decompress(files, headers)
    begun = time.perf_counter()
    _, files, headers = model.compress(image)
    between = time.perf_counter()
    model.decompress(files, headers)
    ended = time.perf_counter()
    size = _SPEED[0] * _SPEED[1] / 1e6
    return (
        f"Coding throughput: encoder: {size / (between - begun):.3f} Mpps, decoder: {size / (ended - between):.3f} Mpps"
    )


def _export(model: Any, config: Config, folder: Path) -> Path:
    """Write the model as McQuic publishes its own: the name has the books, the target and the first of its SHA-256."""
    name = f"qp_{config.Model.Params['m']}_{config.Train.Target.lower()}"
    made = folder / f"{name}.mcquic"
    save_file(made, {"model": model.state_dict(), "config": config.serialize(), "version": VERSION}, mode=0o666)
    final = made.with_name(f"{name}_{hashOfFile(str(made))[:8]}.mcquic")
    made.replace(final)
    return final
