"""Where scalars, configs and images of a run go."""

from etude.dialects.mmengine.live.visualization.backend import BaseVisBackend, LocalVisBackend, TensorboardVisBackend
from etude.dialects.mmengine.live.visualization.services import (
    AimVisBackend,
    ClearMLVisBackend,
    DVCLiveVisBackend,
    NeptuneVisBackend,
)
from etude.dialects.mmengine.live.visualization.trackers import MLflowVisBackend, WandbVisBackend
from etude.dialects.mmengine.live.visualization.visualizer import Visualizer

__all__ = [
    "AimVisBackend", "BaseVisBackend", "ClearMLVisBackend", "DVCLiveVisBackend", "LocalVisBackend",
    "MLflowVisBackend", "NeptuneVisBackend", "TensorboardVisBackend", "Visualizer", "WandbVisBackend",
]  # fmt: skip
