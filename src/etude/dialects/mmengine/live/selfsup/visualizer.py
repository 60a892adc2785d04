"""The visualizer that MMSelfSup's configs name."""

from __future__ import annotations

from typing import Any

import numpy as np

from etude.dialects.mmengine.live.visualization.visualizer import Visualizer


class SelfSupVisualizer(Visualizer):
    """A visualizer whose samples are images, shown as they are."""

    def add_datasample(  # type: ignore[override]
        self,
        name: str,
        image: np.ndarray,
        gt_sample: Any = None,
        show: bool = False,
        wait_time: int = 0,
        out_file: str | None = None,
        step: int = 0,
    ) -> None:
        """Show the image, or hand it to the backends; with ``out_file`` it is written there."""
        if out_file is not None:
            from PIL import Image

            Image.fromarray(image).save(out_file)
        elif show:
            self.show(image, win_name=name, wait_time=wait_time)
        else:
            self.add_image(name, image, step=step)
