"""Stands for ``mmengine.visualization.utils`` where no mmengine is on disk: what MMPretrain imports of it."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["img_from_canvas"]


def img_from_canvas(canvas: Any) -> Any:
    """Return the picture on a canvas of matplotlib as an array of bytes, without its transparency."""
    width, height = canvas.get_width_height()
    pixels = np.frombuffer(canvas.print_to_buffer()[0], dtype=np.uint8)
    return pixels.reshape(height, width, 4)[:, :, :3]
