"""All hooks of mmcv, imported, so that they are in the registry: ``mmcv.runner.hooks``."""

from __future__ import annotations

from etude.dialects.mmcv1.live.checkpoint_hook import CheckpointHook
from etude.dialects.mmcv1.live.ema import EMAHook
from etude.dialects.mmcv1.live.evaluation import DistEvalHook, EvalHook
from etude.dialects.mmcv1.live.hook import HOOKS, Hook
from etude.dialects.mmcv1.live.logger.base import LoggerHook
from etude.dialects.mmcv1.live.logger.text import TextLoggerHook
from etude.dialects.mmcv1.live.logger.trackers import TensorboardLoggerHook
from etude.dialects.mmcv1.live.lr_updater import LrUpdaterHook
from etude.dialects.mmcv1.live.momentum_updater import MomentumUpdaterHook
from etude.dialects.mmcv1.live.optimizer_hook import OptimizerHook
from etude.dialects.mmcv1.live.profiler import ProfilerHook
from etude.dialects.mmcv1.live.skipped import RFSearchHook
from etude.dialects.mmcv1.live.small_hooks import IterTimerHook

__all__ = [
    "HOOKS", "CheckpointHook", "DistEvalHook", "EMAHook", "EvalHook", "Hook", "IterTimerHook", "LoggerHook",
    "LrUpdaterHook", "MomentumUpdaterHook", "OptimizerHook", "ProfilerHook", "RFSearchHook", "TensorboardLoggerHook",
    "TextLoggerHook",
]  # fmt: skip
