"""Runs a model over a dataset and passes its outputs to evaluators."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any

import torch

from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.data.position import of_data

logger = logging.getLogger("libai.evaluation.evaluator")


class DatasetEvaluator:
    """The base class of evaluators: gets inputs and outputs batch by batch, and returns results at the end."""

    def reset(self) -> None:
        """Prepare for an evaluation."""

    def process(self, inputs: Any, outputs: Any) -> None:
        """Process one batch."""

    def evaluate(self) -> Any:
        """Return the results as a mapping, nested or not."""


class DatasetEvaluators(DatasetEvaluator):
    """Combines several evaluators. Their results must not share a key."""

    def __init__(self, evaluators: Sequence[DatasetEvaluator]) -> None:
        super().__init__()
        self._evaluators = evaluators

    def reset(self) -> None:
        for evaluator in self._evaluators:
            evaluator.reset()

    def process(self, inputs: Any, outputs: Any) -> None:
        for evaluator in self._evaluators:
            evaluator.process(inputs, outputs)

    def evaluate(self) -> Any:
        results: OrderedDict[str, Any] = OrderedDict()
        for evaluator in self._evaluators:
            result = evaluator.evaluate()
            if topology.is_main_process() and result is not None:
                for key, value in result.items():
                    assert key not in results, f"Different evaluators produce results with the same key {key}"
                    results[key] = value
        return results


def inference_on_dataset(
    model: Any,
    data_loader: Any,
    batch_size: int,
    eval_iter: float,
    get_batch: Callable[..., Mapping[str, Any]],
    input_placement_device: str,
    evaluator: DatasetEvaluator | Sequence[DatasetEvaluator] | None,
) -> dict[str, Any]:
    """Run at most ``eval_iter`` batches through the model in eval mode, and return the results of ``evaluator``.

    ``batch_size`` is that of all processes together. Afterwards the model is back in its former mode, whatever
    happens.
    """
    looks = as_evaluator(evaluator)
    looks.reset()
    # ``eval_iter`` is a float, which may be infinite.
    batches = min(int(min(eval_iter, 1e12)), len(data_loader))
    samples = len(data_loader.dataset)
    wanted = min(batches * batch_size, samples)
    logger.info(f"with eval_iter {eval_iter}, reset total samples {samples} to {wanted}")
    logger.info(f"Start inference on {wanted} samples")
    watch = Watch(batches, logger)
    seen = 0
    with inference_context(model), torch.no_grad():
        drawn = iter(islice(data_loader, batches))
        for _ in range(batches):
            with of_data():
                data = next(drawn, None)
                if data is None:
                    break
                inputs = get_batch(data, input_placement_device)
            outputs = model(**inputs)
            inputs, outputs = dist.gather_batch(inputs), dist.gather_batch(outputs)
            count = min(_count(inputs), wanted - seen)
            if topology.is_main_process():
                looks.process(_cut(inputs, count), _cut(outputs, count))
            seen += count
            watch.tick()
    logger.info(f"Total valid samples: {seen}")
    watch.report()
    # Only rank 0 has processed the outputs of all ranks.
    results = dist.broadcast_py_object(looks.evaluate() if topology.is_main_process() else None)
    return {} if results is None else results


@contextmanager
def inference_context(model: Any) -> Iterator[None]:
    """Put the model into eval mode inside this context."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


class Watch:
    """Logs the progress at most every five seconds, and the times at the end."""

    def __init__(self, total: int, log: logging.Logger) -> None:
        self.total, self.done, self.log = total, 0, log
        self.start = self.last = time.perf_counter()

    def tick(self) -> None:
        self.done += 1
        now = time.perf_counter()
        if now - self.last < 5:
            return
        self.last = now
        each = (now - self.start) / self.done
        left = timedelta(seconds=int(each * (self.total - self.done)))
        self.log.info(f"Inference done {self.done}/{self.total}. {each:.4f} s/iter. ETA={left}")

    def report(self) -> None:
        passed = time.perf_counter() - self.start
        shown = timedelta(seconds=math.floor(passed))
        self.log.info(f"Total inference time: {shown} ({passed / max(self.done, 1):.6f} s / iter per device)")


def as_evaluator(evaluator: Any) -> DatasetEvaluator:
    if evaluator is None:
        return DatasetEvaluators([])
    if isinstance(evaluator, list | tuple):
        return DatasetEvaluators(evaluator)
    return evaluator  # type: ignore[no-any-return]


def _count(inputs: Mapping[str, Any]) -> int:
    for value in inputs.values():
        if isinstance(value, torch.Tensor) and value.ndim > 0:
            return int(value.shape[0])
    return 1


def _cut(fields: Any, count: int) -> Any:
    """Return the first ``count`` samples of every tensor field."""
    if not isinstance(fields, Mapping):
        return fields
    return {
        name: value[:count] if isinstance(value, torch.Tensor) and value.ndim > 0 else value
        for name, value in fields.items()
    }


def flatten_results_dict(results: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten ``{"a": {"b": 1}}`` to ``{"a/b": 1}``. Empty mappings are dropped."""
    flat: dict[str, Any] = {}
    for key, value in results.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}/{inner}": item for inner, item in flatten_results_dict(value).items()}
        else:
            flat[key] = value
    return flat


def print_csv_format(results: Mapping[str, Any], *, logger_name: str = "libai.evaluation.utils") -> None:
    """Log lines to paste into a table: for each task the names of its results, then the numbers."""
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
