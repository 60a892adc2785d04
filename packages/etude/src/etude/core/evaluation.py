"""Evaluates a model in one pass over data: losses averaged over samples, and metrics."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from etude.core.describe import FORWARD, describe, where_of
from etude.core.forward import Forward, named_losses, takes
from etude.core.loop import evaluate
from etude.core.returned import refuse_return, require_result, wrong_loss
from etude.core.run import Run, numbered
from etude.dist import group
from etude.dist import metrics as all_ranks
from etude.dist.layout.shards import whole_in
from etude.errors import ConfigError, EtudeError, ReturnError, UserCodeError
from etude.errors.own_code import who
from etude.events.record import numbers_of
from etude.losses.outputs import differ_by_ones, scores, takes_tensor, warn_of_broadcast
from etude.plan import Spec

#: Methods of a model that replace the usual evaluation and prediction of a batch.
VALIDATION, PREDICTION = "validation_step", "predict_step"


class Evaluation:
    """Collects losses and metrics on the device and reads the numbers once, at the end.

    A metric is anything with ``update(output, target)``, ``compute()`` and ``reset()``, so torchmetrics' are too. What
    ``compute`` returns is recorded under the metric's name, or under the keys of a mapping. If ``update`` takes a
    third parameter ``run``, the metric can ask ``run.model`` itself: to generate, say.

    A model with a method ``validation_step(batch)`` says itself what an evaluation of a batch gives: a mapping of names
    to numbers, whose means over samples are recorded, with ``output`` and ``target`` for metrics.
    """

    def __init__(
        self,
        forward: Forward,
        metrics: Mapping[str, Any],
        *,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.forward, self.metrics, self.autocast = forward, dict(metrics), autocast
        #: Metrics that ask the model themselves: their ``update`` takes the run, too.
        self._asking = {name for name, metric in self.metrics.items() if _takes(metric.update, "run")}
        self._own = own_step(forward, VALIDATION)
        #: The loader of this pass; it says what the last batch weighed: 0 for one that was only lent to this rank.
        self.loader: Any = None
        #: User-defined metrics whose first batch was looked at.
        self._looked: set[str] = set()
        self._specs: Sequence[Spec] = ()
        self._told: set[str] = set()
        self._done = 0
        self.begin()

    def _weight(self) -> float:
        return float(getattr(self.loader, "weight", 1.0))

    def begin(self) -> None:
        for metric in self.metrics.values():
            metric.reset()
        self._losses: dict[str, list[tuple[torch.Tensor, int]]] = {}
        #: What a validation step of the model's own gives, beside outputs and targets.
        self._results: dict[str, list[tuple[torch.Tensor, int]]] = {}

    def step(self, run: Run, batch: Any) -> dict[str, Any]:
        losses, output, target = self._passed(run, batch)
        # Of ranks that have the same results, one counts.
        lent = run.peers is not None and (self._weight() == 0 or not run.place.counts)
        count = 0 if lent else count_of(target, batch)
        if run.place.is_split:
            output = whole_in(output)
        self._keep(losses, count)
        for name, pairs in all_ranks.parts(self.metrics, output, target, lent=lent).items():
            for seen, wanted in pairs:
                self._measure(run, name, self.metrics[name], seen, wanted)
        return {"losses": losses, "output": output, "target": target}

    def _keep(self, losses: Mapping[str, torch.Tensor], count: int) -> None:
        kept = self._losses if self._own is None else self._results
        for name, value in losses.items():
            kept.setdefault(name, []).append((value.detach(), count))

    def _passed(self, run: Run, batch: Any) -> tuple[dict[str, Any], Any, Any]:
        """Return losses, output and target of a batch; a mistake in what user code returned is told with its place."""
        try:
            with self.autocast():
                losses, output, target = self._forward(batch)
        except Exception as error:
            error.etude_where = f"evaluation, {where_of(error, run, batch)}"  # type: ignore[attr-defined]
            outer, run.acting = run.acting, FORWARD
            refuse_return(error, run, batch, next((key for key, one in run.data.items() if one is self.loader), "val"))
            run.acting = outer
            raise
        if self._own is None and (text := wrong_loss(run, losses, trains=False)):
            raise ReturnError(text)
        self._specs, self._done = run.plan.metrics if run.plan is not None else (), run.done
        return losses, output, target

    #: Computes a metric for the samples of all ranks.
    _compute = staticmethod(all_ranks.compute)

    def _measure(self, run: Run, name: str, metric: Any, output: Any, target: Any) -> None:
        try:
            if name in self._asking and group.is_joined() and not all_ranks.reduces_itself(metric):
                text = f"{who(metric, 'update')} takes `run`: in several processes it has to name its `sums`"
                raise ConfigError(text, hint="sums = ('_total', '_count') are added up over processes")
            if takes_tensor(metric):
                output = _aligned(scores(output), target)
            elif name not in self._looked:
                self._looked.add(name)
                warn_of_broadcast(f"metric {name}", output, target)
            metric.update(output, target, **({"run": run} if name in self._asking else {}))
        except Exception as error:
            shapes = " and ".join(_shape(value) for value in (output, target))
            said = str(error) if isinstance(error, EtudeError) else f"{type(error).__name__}: {error}"
            at = self._place(metric)
            message = f"metric {name}, of {shapes}: {said}"
            if isinstance(error, ConfigError):
                raise ConfigError(message, at=at) from error
            raise UserCodeError(f"{at}: {message}" if at else message) from error

    def _place(self, metric: Any) -> str:
        """Return where the config names a metric; empty in a script."""
        return next((str(spec.at) for spec in self._specs if spec.name == type(metric).__name__), "")

    def end(self) -> dict[str, float]:
        values: dict[str, Any] = {}
        losses = _means(self._losses)
        if len(losses) > 1:
            values |= {f"loss/{name}": mean for name, mean in losses.items()}
        if losses:
            values["loss"] = sum(losses.values())
        values |= _means(self._results)
        owners: dict[str, Any] = {}
        for name, metric in self.metrics.items():
            result = self._compute(metric)
            require_result(name, metric, result, at=self._place(metric))
            if getattr(metric, "remark", ""):
                at, remark, metric.remark = self._place(metric), metric.remark, ""
                warnings.warn(f"{at}{': ' if at else ''}{remark}", stacklevel=2)
            values |= (found := dict(result) if isinstance(result, Mapping) else {name: result})
            owners |= dict.fromkeys(found, metric)
        results = dict(zip(values, numbers_of(list(values.values())), strict=True))
        self._tell_of_nan({name: metric for name, metric in owners.items() if math.isnan(results[name])})
        return results

    def _tell_of_nan(self, owners: Mapping[str, Any]) -> None:
        """Warn, once for each, of results that are no number: they are never the best, and nothing can watch them."""
        for name, metric in owners.items():
            if name not in self._told:
                self._told.add(name)
                text = f"{name}: {who(metric, 'compute')} returned what is not a number (nan){self._when()}"
                warnings.warn(f"{text}; it is never the best result", stacklevel=2)

    def _when(self) -> str:
        return f" after step {self._done}" if self._done else ""

    def losses(self, run: Run, loader: Iterable[Any]) -> dict[str, float]:
        """Run a validation epoch of a workflow: like an evaluation, but recorded at once."""
        values = evaluate(run, loader, self)
        run.events.write(values, step=run.done, epoch=run.last_epoch, split="val")
        return values

    def _forward(self, batch: Any) -> tuple[dict[str, Any], Any, Any]:
        if self._own is not None:
            return self._validated(self._own(batch))
        if self.forward.losses:
            return self.forward(batch)
        output = self._answer(batch)
        try:
            return named_losses(output), output, self.forward.target(batch)
        except UserCodeError:
            return {}, output, self.forward.target(batch)

    def _answer(self, batch: Any) -> Any:
        """Call a model without a loss with the whole batch; with a user-defined update it may take inputs alone."""
        try:
            return self.forward.call(batch)
        except TypeError:
            if takes(self.forward.model, batch) or self.forward.target(batch) is None:
                raise
            return self.forward.call(self.forward.split(batch)[0])

    def _validated(self, given: Any) -> tuple[dict[str, Any], Any, Any]:
        """Return the numbers, the output and the target that the model's own validation step gives."""
        named = dict(given) if isinstance(given, Mapping) else {"loss": given}
        output, target = named.pop("output", None), named.pop("target", None)
        maker = who(plain_of(self.forward.model), VALIDATION)
        for name, value in named.items():
            number = value.numel() == 1 if isinstance(value, torch.Tensor) else isinstance(value, int | float)
            if not number:
                came = "None" if value is None else describe(value)
                text = f"{maker} returned {came} for {name!r}; it gives numbers, and `output` and `target` for metrics"
                raise ReturnError(text)
        if self.metrics and (output is None or target is None):
            name = next(iter(self.metrics))
            raise ReturnError(f"{maker} returned no `output` and `target`, which the metric {name} measures")
        return {name: torch.as_tensor(value).float().reshape(()) for name, value in named.items()}, output, target


def own_step(forward: Forward, name: str) -> Callable[[Any], Any] | None:
    """Return a model's own ``validation_step`` or ``predict_step``, which takes a batch; None if it has none."""
    step = getattr(plain_of(forward.model), name, None)
    if not callable(step) or not hasattr(type(plain_of(forward.model)), name):
        return None
    if type(forward) is not Forward:
        raise ConfigError(f"{name} does not work with parallel.pipeline and parallel.context")
    try:
        inspect.signature(getattr(type(plain_of(forward.model)), name)).bind(None, None)  # FSDP wraps the bound one
    except TypeError:
        raise ConfigError(f"{who(plain_of(forward.model), name)} takes a batch, and nothing else") from None
    return step  # type: ignore[no-any-return]


def plain_of(model: Any) -> Any:
    """Return the model inside DDP's."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def _takes(function: Any, name: str) -> bool:
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _means(values: Mapping[str, list[tuple[torch.Tensor, int]]]) -> dict[str, float]:
    """Return the mean of each value over the samples of all ranks."""
    gathered = group.gather({name: _summed(pairs) for name, pairs in values.items()})
    means = {}
    # Ranks of a pipeline that do not hold its end have no losses.
    for name in dict.fromkeys(name for own in gathered for name in own):
        summed, weight = map(sum, zip(*(own[name] for own in gathered if name in own), strict=True))
        means[name] = summed / weight
    return means


def _summed(pairs: list[tuple[torch.Tensor, int]]) -> tuple[float, int]:
    """Return the sum of losses over samples, and their number."""
    numbers = numbers_of([value for value, _ in pairs])
    # A batch that was lent is left out, not multiplied by 0: its loss may be NaN.
    summed = sum(number * count for number, (_, count) in zip(numbers, pairs, strict=True) if count)
    return float(summed), sum(count for _, count in pairs)


def require_metric(metric: Any, *, at: str = "") -> Any:
    """Return ``metric``, or raise a :class:`~etude.errors.ConfigError` that names the method it lacks."""
    missing = [name for name in ("update", "compute", "reset") if not callable(getattr(metric, name, None))]
    if missing or isinstance(metric, type):
        what = f"has no method {missing[0]!r}" if missing else "is a class, not an object of it"
        name = metric.__name__ if isinstance(metric, type) else type(metric).__name__
        raise ConfigError(
            f"metric {name} {what}", at=at, hint="a metric has update(output, target), compute() and reset()"
        )
    return metric


def by_name(metrics: Iterable[Any]) -> dict[str, Any]:
    """Return the metrics by name; raise for two that give a result of the same name, of which one would be lost."""
    every = list(metrics)
    seen: dict[str, Any] = {}
    for metric in every:
        for name in getattr(metric, "results", (metric_name(metric),)):
            first = seen.setdefault(name, metric)
            if first is not metric or sum(one is metric for one in every) > 1:
                two = f"{type(first).__name__} and {type(metric).__name__}"
                hint = "leave one out, or give it another `name`"
                raise ConfigError(f"two metrics give a result {name.rstrip('/')!r}: {two}", hint=hint)
    return dict(zip(numbered(map(metric_name, every)), every, strict=True))


def metric_name(metric: Any) -> str:
    """Return the name of a metric's results: its ``name``, or its class in snake case."""
    given = getattr(metric, "name", None)
    if isinstance(given, str):
        return given
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(metric).__name__).lower()


def _aligned(output: Any, target: Any) -> Any:
    """Return ``output`` in the shape of a target of numbers; metrics would broadcast (N, 1) against (N,) or refuse."""
    both = isinstance(output, torch.Tensor) and isinstance(target, torch.Tensor)
    if both and output.shape != target.shape and target.is_floating_point() and differ_by_ones(output, target):
        return output.reshape(target.shape)
    return output


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"


def count_of(target: Any, batch: Any) -> int:
    for value in (target, *(batch if isinstance(batch, list | tuple) else ())):
        if isinstance(value, torch.Tensor) and value.ndim > 0:
            return int(value.shape[0])
    return 1
