"""Data and evaluation in converted configs: mmclassification's loaders and tests at work in the native engine.

The native loader draws for every sample from a stream of its own, which is better but other numbers than the
original's. These loaders draw from the generators of the process, in the order in which mmcv's runners do, so that
shuffling, augmentation, dropout and workers give the same bits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch

from etude.core.hook import Hook as EngineHook
from etude.core.loop import Workflow
from etude.core.run import Run
from etude.data.move import move
from etude.data.replay import Replay
from etude.dialects.mmcv1.live.converted import Hook
from etude.dialects.mmcv1.live.log_buffer import LogBuffer
from etude.dialects.mmcv1.live.mmcls.data import build_dataloader, build_dataset
from etude.dialects.mmcv1.live.parallel import scatter
from etude.dialects.openmm.raw import restored
from etude.errors import ConfigError, suggest
from etude.hooks.evaluate import Evaluate
from etude.registry import HOOKS, METRICS


@HOOKS.register(name="mmcv1.Data")
class Data(EngineHook):
    """The loaders of ``data.train`` and ``data.val`` replaced by those of mmclassification.

    ``train`` and ``val`` are their settings, ``validate`` the data of the workflow's validation epochs.
    """

    def __init__(
        self,
        train: Mapping[str, Any],
        val: Mapping[str, Any] | None = None,
        validate: Mapping[str, Any] | None = None,
    ) -> None:
        self.train, self.val, self.validate = restored(train), restored(val), restored(validate)

    def attach(self, run: Run) -> None:
        """Before anything is drawn: the run is built, no hook has begun."""
        device = next(iter(run.model.parameters())).device
        native: Mapping[str, Any] = dict(run.data)
        run.data["train"] = Replay(Batches(build_dataloader(native["train"].dataset, **self.train), device))
        epochs = None
        if self.validate is not None:
            epochs = Batches(build_dataloader(build_dataset(self.validate), **self.train), device)
            run.data.setdefault("val", epochs)
        if self.val is not None:
            dataset, limit = native["val"].dataset, getattr(native["val"], "limit", None)
            run.data["val"] = Batches(build_dataloader(dataset, **self.val), device, limit)
        results = next((m for m in run.evaluation.metrics.values() if isinstance(m, Results)), Results())
        run.evaluation = Evaluation(run, results, epochs)
        if isinstance(run.loop, Workflow):
            run.loop = Rounds(run.loop.flow)

    def before_run(self, run: Run) -> None:
        """Evaluate when the interval says so, and not once more at the end."""
        for hook in run.hooks:
            if isinstance(hook, Evaluate):
                hook.at_end = False
        run.hooks.compile()


class Rounds(Workflow):
    """A workflow as mmcv has it: a round that has begun is finished, so validation follows the last training, too."""

    def __call__(self, run: Run) -> None:
        super().__call__(run)
        turns = [mode for mode, count in self.flow for _ in range(count)]
        while self.position and not run.stopping:
            if turns[self.position] != "train":
                run.evaluation.losses(run, run.data[turns[self.position]])
            self.position = (self.position + 1) % len(turns)


@METRICS.register(name="mmcv1.Results")
class Results:
    """What the data's own ``evaluate(results, **arguments)`` gives; ``name`` is the result that decides what is best.

    ``auto`` stands for the first result, whatever its name.
    """

    def __init__(self, arguments: Mapping[str, Any] | None = None, name: str = "") -> None:
        self.arguments, self.name = restored(arguments) or {}, name
        self.dataset: Any = None
        self._results: list[Any] = []

    def reset(self) -> None:
        self._results = []

    def update(self, output: Any, target: Any = None) -> None:
        self._results.extend(output)

    def compute(self) -> dict[str, float]:
        results = self.dataset.evaluate(self._results, logger=logging.getLogger("mmcv"), **self.arguments)
        found = {str(name): float(value) for name, value in results.items() if _is_number(value)}
        if self.name == "auto" and found:
            found["auto"] = next(iter(found.values()))
        if self.name and found and self.name not in found:
            raise ConfigError(f"checkpoint.best: the evaluation gave no {self.name!r}", hint=suggest(self.name, found))
        return found


class Batches:
    """Batches of one of torch's loaders, unpacked and on the model's device; at most ``limit`` of them."""

    def __init__(self, loader: Any, device: torch.device, limit: int | None = None) -> None:
        self.loader, self.device, self.limit = loader, device, limit

    def __iter__(self) -> Iterator[Any]:
        for batch in islice(self.loader, self.limit):
            yield move(scatter(batch, [-1])[0], self.device)

    def __len__(self) -> int:
        return len(self.loader) if self.limit is None else min(self.limit, len(self.loader))

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before there is one: while being copied
            raise AttributeError(name)
        return getattr(self.loader, name)


class Evaluation:
    """``model(return_loss=False)`` over the data and their own ``evaluate``; validation epochs by ``val_step``."""

    def __init__(self, run: Run, results: Results, epochs: Batches | None) -> None:
        self.model, self.results, self.epochs = run.model, results, epochs
        results.dataset = getattr(run.data.get("val"), "dataset", None)
        self.metrics = {results.name: results} if results.name else {}

    def begin(self) -> None:
        self.results.reset()

    @torch.no_grad()
    def step(self, run: Run, batch: Any) -> dict[str, Any]:
        self.results.update(self.model(return_loss=False, **batch))
        return {}

    def end(self) -> dict[str, float]:
        return self.results.compute()

    @torch.no_grad()
    def losses(self, run: Run, loader: Any) -> dict[str, float]:
        """A validation epoch of the workflow."""
        seen, training, optimizer = LogBuffer(), run.model.training, next(iter(run.optimizers.values()))
        hooks = [hook for hook in run.hooks if isinstance(hook, Hook)]
        run.model.eval()
        _call(hooks, "before_val_epoch", run)
        for batch in self.epochs if self.epochs is not None else loader:
            _call(hooks, "before_val_iter", run)
            outputs: Any = run.model.val_step(batch, optimizer)  # type: ignore[operator]
            seen.update(outputs.get("log_vars", {}), outputs.get("num_samples", 1))
            _call(hooks, "after_val_iter", run)
        _call(hooks, "after_val_epoch", run)
        run.model.train(training)
        seen.average()
        values = {name: float(value) for name, value in seen.output.items()}
        run.events.write(values, step=run.done, epoch=run.epoch, split="val")
        return values


def _call(hooks: list[Hook], stage: str, run: Run) -> None:
    for hook in hooks:
        hook.call(stage, run)


def _is_number(value: Any) -> bool:
    """A number of Python, numpy or torch; results may be texts and lists, too, which nobody can draw or compare."""
    if isinstance(value, int | float) or (isinstance(value, torch.Tensor) and value.numel() == 1):
        return not isinstance(value, bool)
    return isinstance(value, np.generic | np.ndarray) and value.size == 1 and np.issubdtype(value.dtype, np.number)
