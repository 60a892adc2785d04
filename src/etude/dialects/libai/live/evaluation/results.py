"""What evaluations give: nested mappings of numbers, flattened and printed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any


def flatten_results_dict(results: Mapping[str, Any]) -> dict[str, Any]:
    """``{"a": {"b": 1}}`` → ``{"a/b": 1}``; empty mappings vanish."""
    flat: dict[str, Any] = {}
    for key, value in results.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}/{inner}": item for inner, item in flatten_results_dict(value).items()}
        else:
            flat[key] = value
    return flat


def print_csv_format(results: Mapping[str, Any], *, logger_name: str = "libai.evaluation.utils") -> None:
    """Lines that can be pasted into a table: per task the names of its numbers, then the numbers."""
    assert isinstance(results, Mapping), results
    logger = logging.getLogger(logger_name)
    for task, numbers in results.items():
        if not isinstance(numbers, Mapping):
            logger.info(f"copypaste: {task}={numbers}")
            continue
        shown = [(name, value) for name, value in numbers.items() if "-" not in name]
        logger.info(f"copypaste: Task: {task}")
        logger.info("copypaste: " + ",".join(name for name, _ in shown))
        logger.info("copypaste: " + ",".join(f"{value:.4f}" for _, value in shown))
