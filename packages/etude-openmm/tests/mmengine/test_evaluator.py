"""Metrics and the evaluator."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.dialects import imports
from mmengine.structures import BaseDataElement

imports.install()

from mmengine.evaluator import BaseMetric, DumpResults, Evaluator, get_metric_value  # noqa: E402
from mmengine.registry import EVALUATOR, METRICS  # noqa: E402


@METRICS.register_module(force=True)
class Share(BaseMetric):
    """How many predictions are right."""

    default_prefix = "Toy"

    def __init__(self, name: str = "accuracy", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name = name

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        self.results.extend(sample["pred"] == sample["label"] for sample in data_samples)

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        return {self.name: sum(bool(result) for result in results) / len(results), "count": len(results)}


def samples(count: int) -> list[Any]:
    return [BaseDataElement(pred=index % 2, label=0) for index in range(count)]


def test_results_are_cut_to_the_size_and_forgotten() -> None:
    evaluator = Evaluator(Share())
    evaluator.process(samples(6), data_batch=None)
    assert evaluator.evaluate(5) == {"Toy/accuracy": 0.6, "Toy/count": 5}
    assert evaluator.metrics[0].results == []


def test_several_metrics_need_different_names() -> None:
    evaluator = EVALUATOR.build(
        {"type": "Evaluator", "metrics": [{"type": "Share"}, {"type": "Share", "prefix": "Other"}]}
    )
    evaluator.dataset_meta = {"classes": 2}
    assert all(metric.dataset_meta == {"classes": 2} for metric in evaluator.metrics)
    evaluator.process(samples(2), None)
    assert list(evaluator.evaluate(2)) == ["Toy/accuracy", "Toy/count", "Other/accuracy", "Other/count"]
    twins = Evaluator([Share(), Share()])
    twins.process(samples(2))
    with pytest.raises(ValueError, match="same metric name"):
        twins.evaluate(2)


def test_predictions_of_before_are_evaluated_in_chunks() -> None:
    evaluator = Evaluator([{"type": "Share"}])
    assert evaluator.offline_evaluate(samples(5), data=list(range(5)), chunk_size=2)["Toy/count"] == 5
    with pytest.raises(AssertionError):
        evaluator.offline_evaluate(samples(5), data=[1])


def test_a_folder_is_for_collecting_on_the_cpu() -> None:
    with pytest.raises(ValueError):
        Share(collect_device="gpu", collect_dir="somewhere")
    with pytest.raises(TypeError):
        BaseMetric()


def test_predictions_are_dumped(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        DumpResults("results.txt")
    metric = DumpResults(str(tmp_path / "results.pkl"))
    metric.process(None, [{"pred": torch.tensor([1.0]), "parts": ([torch.ones(1)],)}])
    assert metric.evaluate(1) == {}
    assert pickle.loads((tmp_path / "results.pkl").read_bytes())[0]["pred"].tolist() == [1.0]


def test_a_metric_is_found_by_its_name_with_or_without_prefix() -> None:
    metrics = {"a/acc": 1, "b/acc": 2, "b/loss": 3}
    assert (get_metric_value("a/acc", metrics), get_metric_value("loss", metrics)) == (1, 3)
    for wrong in ("acc", "c/acc", "nothing"):
        with pytest.raises(ValueError):
            get_metric_value(wrong, metrics)
