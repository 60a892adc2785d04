"""Results in detectron2's words."""

from __future__ import annotations

import logging
import pprint
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from etude.dialects.libai.live.evaluation import results as shared
from etude.dialects.libai.live.evaluation.results import flatten_results_dict

__all__ = ["flatten_results_dict", "print_csv_format", "verify_results"]


def print_csv_format(results: Mapping[str, Any]) -> None:
    shared.print_csv_format(results, logger_name="detectron2.evaluation.testing")


def verify_results(cfg: Any, results: Mapping[str, Any]) -> bool:
    """Whether the results are what ``cfg.TEST.EXPECTED_RESULTS`` says; the process ends if they are not."""
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
