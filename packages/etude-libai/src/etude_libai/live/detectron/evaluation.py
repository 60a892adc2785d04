"""detectron2's ``inference_on_dataset``: runs a model over a loader and evaluates it."""

from __future__ import annotations

import logging
import pprint
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from etude_libai.live.evaluation import run as shared
from etude_libai.live.evaluation.run import (
    DatasetEvaluator,
    DatasetEvaluators,
    Watch,
    flatten_results_dict,
    inference_context,
)

__all__ = [
    "DatasetEvaluator", "DatasetEvaluators", "flatten_results_dict", "inference_context", "inference_on_dataset",
    "print_csv_format", "verify_results",
]  # fmt: skip


def inference_on_dataset(
    model: Any,
    data_loader: Any,
    evaluator: DatasetEvaluator | Sequence[DatasetEvaluator] | None,
    callbacks: Mapping[str, Callable[[], Any]] | None = None,
) -> Any:
    """Run every batch through the model in eval mode, pass it to ``evaluator`` and return its results."""
    logger = logging.getLogger("detectron2.evaluation.evaluator")
    total = len(data_loader)
    logger.info(f"Start inference on {total} batches")
    looks = shared.as_evaluator(evaluator)
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


def print_csv_format(results: Mapping[str, Any]) -> None:
    shared.print_csv_format(results, logger_name="detectron2.evaluation.testing")


def verify_results(cfg: Any, results: Mapping[str, Any]) -> bool:
    """Compare the results with ``cfg.TEST.EXPECTED_RESULTS``, and exit with code 1 if they differ."""
    expected = cfg.TEST.EXPECTED_RESULTS
    good = True
    for task, metric, wanted, tolerance in expected:
        actual = results[task].get(metric)
        good = good and actual is not None and bool(np.isfinite(actual)) and abs(actual - wanted) <= tolerance
    logger = logging.getLogger("detectron2.evaluation.testing")
    if not good:
        logger.error("Result verification failed!")
        logger.error("Expected Results: " + str(expected))
        logger.error("Actual Results: " + pprint.pformat(results))
        sys.exit(1)
    if expected:
        logger.info("Results verification passed.")
    return good
