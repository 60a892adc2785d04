"""The visualizer and the hook for pictures that MMPretrain's configs name."""

from __future__ import annotations

from typing import Any

from etude.dialects.mmengine.live.hooks.hook import Hook
from etude.dialects.mmengine.live.visualization.visualizer import Visualizer
from etude.errors import OutOfScope


class UniversalVisualizer(Visualizer):
    """MMEngine's visualizer under the name of MMPretrain's, which can also draw predictions of its own networks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("visualize_"):
            raise OutOfScope(f"UniversalVisualizer.{name} draws predictions of MMPretrain's networks; use add_image")
        raise AttributeError(name)


class VisualizationHook(Hook):
    """Every config of MMPretrain's has it, switched off; switched on it would draw predictions of its networks."""

    def __init__(
        self, enable: bool = False, interval: int = 5000, show: bool = False, out_dir: str | None = None, **kwargs: Any
    ) -> None:
        if enable:
            raise OutOfScope("VisualizationHook(enable=True) draws predictions of MMPretrain's networks; write a hook "
                             "of your own that calls runner.visualizer.add_image")  # fmt: skip
