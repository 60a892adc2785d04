"""The visualizers that configs of MMSelfSup and MMPretrain name."""

from __future__ import annotations

from typing import Any

import numpy as np

from etude.errors import OutOfScope
from etude_openmm.mmengine.live.hooks.hook import Hook
from etude_openmm.mmengine.live.visualization.visualizer import Visualizer


class SelfSupVisualizer(Visualizer):
    """A visualizer for samples that are plain images."""

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
        """Write the image to ``out_file`` if given; else show it or give it to the backends."""
        if out_file is not None:
            from PIL import Image

            Image.fromarray(image).save(out_file)
        elif show:
            self.show(image, win_name=name, wait_time=wait_time)
        else:
            self.add_image(name, image, step=step)


class UniversalVisualizer(Visualizer):
    """MMEngine's visualizer under the name that MMPretrain configs use. It cannot draw predictions of its networks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("visualize_"):
            raise OutOfScope(f"UniversalVisualizer.{name} draws predictions of MMPretrain's networks; use add_image")
        raise AttributeError(name)


class VisualizationHook(Hook):
    """Does nothing: MMPretrain configs contain it, turned off. Turned on it raises an error, as drawing is missing."""

    def __init__(
        self, enable: bool = False, interval: int = 5000, show: bool = False, out_dir: str | None = None, **kwargs: Any
    ) -> None:
        if enable:
            raise OutOfScope("VisualizationHook(enable=True) draws predictions of MMPretrain's networks; write a hook "
                             "of your own that calls runner.visualizer.add_image")  # fmt: skip
