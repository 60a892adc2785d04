"""Metrics, and the evaluator that asks several of them."""

from etude.dialects.mmengine.live.evaluator.evaluator import Evaluator, get_metric_value
from etude.dialects.mmengine.live.evaluator.metric import BaseMetric, DumpResults

__all__ = ["BaseMetric", "DumpResults", "Evaluator", "get_metric_value"]
