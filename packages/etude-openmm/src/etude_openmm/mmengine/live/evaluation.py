"""MMEngine's Evaluator and BaseMetric: metrics over a whole validation or test set."""

from __future__ import annotations

import pickle
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import Any

from etude.dialects.properties import leads_to
from etude_openmm.mmengine.live import user_errors
from etude_openmm.mmengine.live.collate import is_element, on_cpu
from etude_openmm.mmengine.live.dist.collectives import broadcast_object_list, collect_results
from etude_openmm.mmengine.live.dist.utils import is_main_process
from etude_openmm.shared.logging import log_warning, print_log
from etude_openmm.shared.registries.root import EVALUATOR, METRICS


@EVALUATOR.register_module()
class Evaluator:
    """Gives every batch to one or more metrics (objects or configs), and merges their results."""

    def __init__(self, metrics: dict[str, Any] | BaseMetric | Sequence[Any]) -> None:
        self._dataset_meta: dict[str, Any] | None = None
        given = metrics if isinstance(metrics, Sequence) else [metrics]
        self.metrics: list[Any] = [METRICS.build(metric) if isinstance(metric, dict) else metric for metric in given]

    @property
    def dataset_meta(self) -> dict[str, Any] | None:
        """Return the metainfo of the dataset. Setting it sets it for all metrics."""
        return self._dataset_meta

    @dataset_meta.setter
    def dataset_meta(self, dataset_meta: dict[str, Any]) -> None:
        self._dataset_meta = dataset_meta
        for metric in self.metrics:
            metric.dataset_meta = dataset_meta

    def process(self, data_samples: Sequence[Any], data_batch: Any = None) -> None:
        """Give a batch and the model's outputs for it to every metric. Data elements become dicts."""
        samples = [sample.to_dict() if is_element(sample) else sample for sample in data_samples]
        for metric in self.metrics:
            metric.process(data_batch, samples)

    def evaluate(self, size: int) -> dict[str, Any]:
        """Return the results of all metrics by name. Raises ``ValueError`` if two metrics use one name."""
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
        """Return the metrics of given predictions, without a model."""
        if data is not None:
            assert len(data_samples) == len(data), (
                f"data_samples and data should have the same length, but got {len(data_samples)} and {len(data)}"
            )
        for start in range(0, len(data_samples), chunk_size):
            chosen = slice(start, start + chunk_size)
            self.process(data_samples[chosen], None if data is None else data[chosen])
        return self.evaluate(len(data_samples))


def get_metric_value(indicator: str, metrics: dict[str, Any]) -> Any:
    """Return the metric called ``indicator``: the whole name, or the part after the prefix if only one matches."""
    if "/" in indicator:
        if indicator not in metrics:
            raise ValueError(f'The indicator "{indicator}" can not match any metric in {list(metrics)}')
        return metrics[indicator]
    matched = [name for name in metrics if name.split("/")[-1] == indicator]
    if not matched:
        raise ValueError(f"The indicator {indicator} can not match any metric in {list(metrics)}")
    if len(matched) > 1:
        raise ValueError(f'The indicator "{indicator}" matches multiple metrics {matched}')
    return metrics[matched[0]]


class BaseMetric(metaclass=ABCMeta):
    """The base class of metrics. ``process`` appends to ``self.results``; rank 0 calls ``compute_metrics`` on all.

    Names of metrics are prefixed with ``prefix``, or ``default_prefix``, and a slash.
    """

    default_prefix: str | None = None

    def __init__(self, collect_device: str = "cpu", prefix: str | None = None, collect_dir: str | None = None) -> None:
        if collect_dir is not None and collect_device != "cpu":
            raise ValueError("`collec_dir` could only be configured when `collect_device='cpu'`")
        self._dataset_meta: dict[str, Any] | None = None
        self.collect_device, self.collect_dir = collect_device, collect_dir
        self.results: list[Any] = []
        self.prefix = prefix or self.default_prefix  # an empty one stands for the default, as in MMEngine
        if self.prefix is None:
            log_warning(f"The prefix is not set in metric class {type(self).__name__}.")

    #: The metainfo of the dataset, which is set before an evaluation.
    dataset_meta: dict[str, Any] | None = leads_to("_dataset_meta")

    @abstractmethod
    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        """Append to ``self.results`` what ``compute_metrics`` needs of a batch and the model's outputs for it."""

    @abstractmethod
    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        """Return names and values from the results of the whole dataset."""

    def evaluate(self, size: int) -> dict[str, Any]:
        """Return the metrics of a dataset of ``size`` samples. Results of samples that padding repeated are cut off."""
        if not self.results:
            log_warning(
                f"{type(self).__name__} got empty `self.results`. Please ensure that the processed results are "
                "properly added into `self.results` in `process` method."
            )
        results = collect_results(self.results, size, self.collect_device, tmpdir=self.collect_dir)
        metrics: list[Any] = [None]
        if is_main_process():
            computed = self.compute_metrics(on_cpu(results))
            try:
                metrics = [{self._named(name): value for name, value in computed.items()}]
            except AttributeError as error:
                user_errors.of_metrics(error, self, computed)
                raise
        broadcast_object_list(metrics)  # hooks of all processes decide by the metrics of rank 0
        self.results.clear()
        found: dict[str, Any] = metrics[0]
        return found

    def _named(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    # -- as a native metric --------------------------------------------------------------------------------------

    def reset(self) -> None:
        self.results.clear()

    def update(self, output: Any, target: Any) -> None:
        self.process(target, output)

    def compute(self) -> dict[str, Any]:
        return self.evaluate(len(self.results))


@METRICS.register_module()
class DumpResults(BaseMetric):
    """Writes all predictions to a pickle file and returns no metric."""

    def __init__(self, out_file_path: str, collect_device: str = "cpu", collect_dir: str | None = None) -> None:
        super().__init__(collect_device=collect_device, collect_dir=collect_dir)
        if not out_file_path.endswith((".pkl", ".pickle")):
            raise ValueError("The output file must be a pkl file.")
        self.out_file_path = out_file_path

    def process(self, data_batch: Any, data_samples: Sequence[dict[str, Any]]) -> None:
        self.results.extend(on_cpu(data_samples))

    def compute_metrics(self, results: list[Any]) -> dict[str, Any]:
        with open(self.out_file_path, "wb") as file:
            pickle.dump(results, file)
        print_log(f"Results has been saved to {self.out_file_path}.", logger="current")
        return {}
