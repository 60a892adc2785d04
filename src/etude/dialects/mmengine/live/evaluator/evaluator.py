"""Gives every batch to all metrics, and unites what they compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from etude.dialects.mmengine.live.data.element import BaseDataElement
from etude.dialects.mmengine.live.evaluator.metric import BaseMetric
from etude.dialects.mmengine.live.registry import EVALUATOR, METRICS


@EVALUATOR.register_module()
class Evaluator:
    """One metric or several, as objects or configs."""

    def __init__(self, metrics: dict[str, Any] | BaseMetric | Sequence[Any]) -> None:
        self._dataset_meta: dict[str, Any] | None = None
        given = metrics if isinstance(metrics, Sequence) else [metrics]
        self.metrics: list[Any] = [METRICS.build(metric) if isinstance(metric, dict) else metric for metric in given]

    @property
    def dataset_meta(self) -> dict[str, Any] | None:
        """Return what is known about the dataset; setting it sets it for all metrics."""
        return self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict[str, Any]) -> None:
        self._dataset_meta = dataset_meta
        for metric in self.metrics:
            metric.dataset_meta = dataset_meta

    def process(self, data_samples: Sequence[Any], data_batch: Any = None) -> None:
        """Give a batch and the model's outputs for it to every metric; data elements as dicts."""
        samples = [sample.to_dict() if isinstance(sample, BaseDataElement) else sample for sample in data_samples]
        for metric in self.metrics:
            metric.process(data_batch, samples)

    def evaluate(self, size: int) -> dict[str, Any]:
        """The metrics of all of them; a name that two of them use is refused."""
        united: dict[str, Any] = {}
        for metric in self.metrics:
            found = metric.evaluate(size)
            for name in found:
                if name in united:
                    raise ValueError(
                        f"There are multiple evaluation results with the same metric name {name}. "
                        "Please make sure all metrics have different prefixes."
                    )
            united.update(found)
        return united

    def offline_evaluate(
        self, data_samples: Sequence[Any], data: Sequence[Any] | None = None, chunk_size: int = 1
    ) -> dict[str, Any]:
        """The metrics of predictions that were made before."""
        if data is not None:
            assert len(data_samples) == len(data), (
                f"data_samples and data should have the same length, but got {len(data_samples)} and {len(data)}"
            )
        for start in range(0, len(data_samples), chunk_size):
            chosen = slice(start, start + chunk_size)
            self.process(data_samples[chosen], None if data is None else data[chosen])
        return self.evaluate(len(data_samples))


def get_metric_value(indicator: str, metrics: dict[str, Any]) -> Any:
    """The metric called ``indicator``: its whole name, or the part behind the prefix if only one has that."""
    if "/" in indicator:
        if indicator not in metrics:
            raise ValueError(f'The indicator "{indicator}" can not match any metric in {list(metrics)}')
        return metrics[indicator]
    matched = list(_ending_in(indicator, metrics))
    if not matched:
        raise ValueError(f"The indicator {indicator} can not match any metric in {list(metrics)}")
    if len(matched) > 1:
        raise ValueError(f'The indicator "{indicator}" matches multiple metrics {matched}')
    return metrics[matched[0]]


def _ending_in(indicator: str, metrics: dict[str, Any]) -> Iterator[str]:
    return (name for name in metrics if name.split("/")[-1] == indicator)
