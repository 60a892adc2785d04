"""All hooks of mmcv, imported, so that they are in the registry: ``mmcv.runner.hooks``."""

from __future__ import annotations

from etude.dialects.mmcv1.live.hooks.checkpoint_hook import CheckpointHook
from etude.dialects.mmcv1.live.hooks.ema import EMAHook
from etude.dialects.mmcv1.live.hooks.evaluation import DistEvalHook, EvalHook
from etude.dialects.mmcv1.live.hooks.hook import HOOKS, Hook
from etude.dialects.mmcv1.live.hooks.lr_updater import LrUpdaterHook
from etude.dialects.mmcv1.live.hooks.momentum_updater import MomentumUpdaterHook
from etude.dialects.mmcv1.live.hooks.optimizer_hook import OptimizerHook
from etude.dialects.mmcv1.live.hooks.profiler import ProfilerHook
from etude.dialects.mmcv1.live.hooks.small_hooks import IterTimerHook, RFSearchHook
from etude.dialects.mmcv1.live.logger.base import LoggerHook
from etude.dialects.mmcv1.live.logger.text import TextLoggerHook
from etude.dialects.mmcv1.live.logger.trackers import TensorboardLoggerHook

__all__ = [
    "HOOKS", "CheckpointHook", "DistEvalHook", "EMAHook", "EvalHook", "Hook", "IterTimerHook", "LoggerHook",
    "LrUpdaterHook", "MomentumUpdaterHook", "OptimizerHook", "ProfilerHook", "RFSearchHook", "TensorboardLoggerHook",
    "TextLoggerHook",
]  # fmt: skip
