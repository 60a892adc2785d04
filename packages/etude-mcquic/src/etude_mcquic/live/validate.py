"""Validates a compressor on whole images: PSNR, MS-SSIM and bits per pixel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from etude_mcquic.live.data.images import pad
from etude_mcquic.live.data.transforms import DeTransform
from etude_mcquic.live.formats import Decibel
from etude_mcquic.live.model.compound import named
from etude_mcquic.live.model.losses import msSSIM


class Validator:
    """Computes means over the images of ``valSet``. PSNR, MS-SSIM and a user-defined target are in decibel."""

    def __init__(self, images: Any, *, limit: int | None = None) -> None:
        self.images = images
        self.count = len(images) if limit is None else min(limit, len(images))

    def __call__(self, epoch: int, trainer: Any) -> tuple[dict[str, float], Tensor | None]:
        return self.means(trainer._model, trainer.config.Train.Target, between=trainer.leave_validation)

    @torch.no_grad()
    def means(
        self, model: Any, target: str, *, between: Callable[[], None] = lambda: None
    ) -> tuple[dict[str, float], Tensor | None]:
        """Return the results by name, and the first restored image. ``between`` is called before each image."""
        rows, picture, device = [], None, next(model.parameters()).device
        for index in range(self.count):
            between()
            image = self.images[index].unsqueeze(0).to(device)
            rows.append(measure(model.Compressor, image))
            if target not in rows[-1]:
                _, distortion = model.criterion(rows[-1]["picture"], image)
                rows[-1][target] = float(decibel_of(target)(distortion))
            if picture is None:
                picture = (rows[0].pop("picture") + 1) / 2
            rows[-1].pop("picture", None)
        return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}, picture


def decibel_of(target: str) -> Decibel:
    """Return the module that converts the distortion of a target to decibel."""
    # The mean squared error is of images in [-1, 1], whose range is 2.
    return Decibel(2.0 if target == "PSNR" else 1.0)


def measure(compressor: Any, image: Tensor) -> dict[str, Any]:
    """Return PSNR, MS-SSIM, bits per pixel and the restored image, for one image (1×3×H×W in [-1, 1])."""
    height, width = image.shape[-2:]
    restored, bits = _compress(compressor, image)
    back = restored[..., :height, :width].clamp(-1, 1)
    found, wanted = _bytes(back), _bytes(image)
    similarity = msSSIM(wanted, found, dataRange=255.0).mean(1)
    return {
        "PSNR": float(Decibel(255.0)(((wanted - found) ** 2).mean())),
        "MsSSIM": float(Decibel(1.0)(1 - similarity)),
        "BPP": bits / (height * width),
        "picture": back,
    }


def _compress(compressor: Any, image: Tensor) -> tuple[Tensor, float]:
    """Return the restored image and the number of bits: of compressed files if the model can write them."""
    if hasattr(compressor, "compress"):
        _, files, headers = compressor.compress(image)
        return compressor.decompress(files, headers), 8.0 * sum(len(part) for file in files for part in file)
    outputs = named(compressor(pad(image, getattr(compressor, "stride", 1))))
    return outputs["restored"], compressor.bits(outputs["codes"]) if hasattr(compressor, "bits") else float("nan")


def _bytes(image: Tensor) -> Tensor:
    shown: Tensor = DeTransform()(image)
    return shown.float()
