"""Shows what a model predicts, on the pictures themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from etude.dialects.mmengine.live.hooks.hook import DataBatch, Hook


class NaiveVisualizationHook(Hook):
    """Records the model's graph when training begins, and every ``interval``-th test batch with its samples."""

    priority = "NORMAL"

    def __init__(self, interval: int = 1, draw_gt: bool = True, draw_pred: bool = True) -> None:
        self.draw_gt, self.draw_pred = draw_gt, draw_pred
        self._interval = interval

    def before_train(self, runner: Any) -> None:
        if runner.visualizer is not None:
            runner.visualizer.add_graph(runner.model, None)

    def after_test_iter(
        self, runner: Any, batch_idx: int, data_batch: DataBatch = None, outputs: Sequence[Any] | None = None
    ) -> None:
        if not self.every_n_inner_iters(batch_idx, self._interval):
            return
        inputs = data_batch["inputs"] if isinstance(data_batch, dict) else [item["inputs"] for item in data_batch]
        for picture, sample in zip(inputs, outputs or (), strict=False):
            meta = getattr(sample, "metainfo", {})
            runner.visualizer.add_datasample(
                os.path.basename(str(meta.get("img_path", f"sample_{batch_idx}"))),
                _unpadded(tensor2imgs(picture), meta),
                data_sample=sample,
                draw_gt=self.draw_gt,
                draw_pred=self.draw_pred,
                step=batch_idx,
            )


def tensor2imgs(picture: Any) -> np.ndarray:
    """A CHW tensor, or the first of a batch of them, as an HWC array of bytes."""
    if isinstance(picture, torch.Tensor):
        picture = picture[0] if picture.ndim == 4 else picture
        picture = picture.detach().cpu().numpy().transpose(1, 2, 0)
    if picture.dtype != np.uint8:
        low, high = float(picture.min()), float(picture.max())
        picture = (picture - low) / max(high - low, 1e-12) * 255
    return np.ascontiguousarray(picture.astype(np.uint8))


def _unpadded(picture: np.ndarray, meta: Any) -> np.ndarray:
    """Without the padding that batching added, in the size that the sample had before resizing."""
    if "img_shape" in meta:
        height, width = meta["img_shape"][:2]
        picture = picture[:height, :width]
    return picture
