"""Evaluation in detectron2's words: batches go to the model as they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from etude.dialects.libai.live.evaluation.run import DatasetEvaluator, DatasetEvaluators, Watch, inference_context

__all__ = ["DatasetEvaluator", "DatasetEvaluators", "inference_context", "inference_on_dataset"]


def inference_on_dataset(
    model: Any,
    data_loader: Any,
    evaluator: DatasetEvaluator | Sequence[DatasetEvaluator] | None,
    callbacks: Mapping[str, Callable[[], Any]] | None = None,
) -> Any:
    """Every batch through the model in eval mode, each looked at by ``evaluator``; its results."""
    logger = logging.getLogger("detectron2.evaluation.evaluator")
    total = len(data_loader)
    logger.info(f"Start inference on {total} batches")
    looks = DatasetEvaluators([]) if evaluator is None else evaluator
    if isinstance(looks, Sequence):
        looks = DatasetEvaluators(looks)
    looks.reset()
    calls = {
        name: (callbacks or {}).get(name, lambda: None)
        for name in ("on_start", "before_inference", "after_inference", "on_end")
    }
    watch = Watch(total, logger)
    with inference_context(model) if isinstance(model, torch.nn.Module) else nullcontext(), torch.no_grad():
        calls["on_start"]()
        for inputs in data_loader:
            calls["before_inference"]()
            outputs = model(inputs)
            calls["after_inference"]()
            looks.process(inputs, outputs)
            watch.tick()
        calls["on_end"]()
    watch.report()
    results = looks.evaluate()
    return {} if results is None else results
