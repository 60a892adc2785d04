"""Writes scalars, configs and images of a run."""

from etude.dialects.mmengine.live.visualization.backend import BaseVisBackend, LocalVisBackend
from etude.dialects.mmengine.live.visualization.trackers import (
    AimVisBackend,
    ClearMLVisBackend,
    DVCLiveVisBackend,
    MLflowVisBackend,
    NeptuneVisBackend,
    TensorboardVisBackend,
    WandbVisBackend,
)
from etude.dialects.mmengine.live.visualization.visualizer import Visualizer

__all__ = [
    "AimVisBackend", "BaseVisBackend", "ClearMLVisBackend", "DVCLiveVisBackend", "LocalVisBackend",
    "MLflowVisBackend", "NeptuneVisBackend", "TensorboardVisBackend", "Visualizer", "WandbVisBackend",
]  # fmt: skip
