"""MMEngine's train, validation and test loops, run by Étude's training step and evaluation."""

from __future__ import annotations

import bisect
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from etude.core.loop import evaluate, train_step
from etude.core.run import Run
from etude.data.resume import Snapshot
from etude.data.torch_loader.passes import Passes, seed_for_workers
from etude.dialects.properties import leads_to, reads
from etude.errors import Stopped
from etude_openmm.mmengine.live.device import autocast
from etude_openmm.mmengine.live.logging.logger import print_log
from etude_openmm.mmengine.live.passes import ValLosses, _InfiniteDataloaderIterator
from etude_openmm.shared.logging import log_warning


class BaseLoop(metaclass=ABCMeta):
    """The base class of loops; subclasses implement ``run()``. A dataloader config is built with the runner's seed."""

    def __init__(self, runner: Any, dataloader: Any) -> None:
        self._runner = runner
        #: Étude's run, whose counters this loop moves.
        self.engine: Run = getattr(runner, "engine", None)  # type: ignore[assignment]
        if isinstance(dataloader, dict):
            differs = runner._randomness_cfg.get("diff_rank_seed", False)
            self.dataloader = runner.build_dataloader(dataloader, seed=runner.seed, diff_rank_seed=differs)
        else:
            self.dataloader = dataloader

    runner: Any = reads("_runner")

    @abstractmethod
    def run(self) -> Any:
        """Run the whole loop."""


class _TrainLoop(BaseLoop):
    """The base of both train loops: keeps the counters in Étude's run and decides when a validation is due."""

    stop_training: bool = False
    #: During a validation: the states of the random generators from before it, else None.
    generators: Snapshot | None = None
    #: Whether a validation has been run before.
    validated: bool = False

    def __init__(
        self,
        runner: Any,
        dataloader: Any,
        val_begin: int,
        val_interval: int,
        dynamic_intervals: list[tuple[int, int]] | None,
    ) -> None:
        super().__init__(runner, dataloader)
        self._epoch, self._iter = 0, 0
        if val_interval < 1:
            raise ValueError(f"val_interval must be at least 1, but got {val_interval}")
        self.val_begin, self.val_interval = val_begin, val_interval
        self.stop_training = False
        #: The position in the training data.
        self.passes = Passes(lambda: self.dataloader, lambda: self.engine.step, log_warning)
        dataset: Any = getattr(self.dataloader, "dataset", None)
        if hasattr(dataset, "metainfo"):
            runner.visualizer.dataset_meta = dataset.metainfo
        else:
            log_warning(f"{type(dataset).__name__} has no metainfo: the visualizer will not know the classes")
        self.dynamic_milestones, self.dynamic_intervals = calc_dynamic_intervals(val_interval, dynamic_intervals)

    @property
    def _iter(self) -> int:
        return self.engine.step

    @_iter.setter
    def _iter(self, value: int) -> None:
        self.engine.step, self.engine.stage = value, ""  # no point of the old step is being called any more

    _epoch: int = leads_to("engine.epoch")
    #: Finished epochs and iterations.
    epoch: int = reads("engine.epoch")
    iter: int = reads("engine.step")
    max_epochs: int = reads("_max_epochs")
    max_iters: int = reads("_max_iters")

    @property
    def stopping(self) -> bool:
        """Return whether a hook or a signal has asked to stop."""
        return self.stop_training or self.engine.stopping is not None

    def _step(self, batch_idx: int, data_batch: Any) -> None:
        """Train on one batch: hooks, ``train_step`` of the model, hooks, counters."""
        run = self.engine
        run.step_in_epoch = batch_idx
        train_step(run, data_batch)

    def _decide_current_val_interval(self) -> None:
        """Set ``val_interval`` to that of the milestone which the coming epoch or iteration has reached."""
        if len(self.dynamic_milestones) == 1:
            return
        now = self._epoch if isinstance(self, EpochBasedTrainLoop) else self._iter
        # As in MMEngine, one early: an interval rules as soon as the counter plus 1 has reached its start.
        self.val_interval = self.dynamic_intervals[bisect.bisect(self.dynamic_milestones, now + 1) - 1]

    def _validate(self) -> None:
        """Validate. If a signal or an exception ends it, undo what it changed and mark the validation as owed."""
        loader = self.runner.val_loop.dataloader
        begun, self.validated = self.validated, True
        self.generators = Snapshot.take()
        self.runner.begin_validation()
        try:
            with seed_for_workers(loader, drawn=not (begun and getattr(loader, "persistent_workers", False))):
                self.runner.val_loop.run()
        except Stopped as stop:
            self._forget_validation(begun)
            self.engine.stop(stop.reason, exit_code=stop.exit_code)
            return
        except Exception:
            self._forget_validation(begun)
            raise
        finally:
            self.generators = None
        self.runner.note_validation()

    def _forget_validation(self, begun: bool) -> None:
        self.runner.cut_validation()
        assert self.generators is not None
        self.generators.restore()
        self.validated = begun

    def _validate_if_due(self, count: int, last: int) -> None:
        """Validate after epoch or iteration ``count`` if that is due. If a signal leaves no time, mark it as owed."""
        self._decide_current_val_interval()
        if not self._validation_is_due(count, last):
            return
        if self.engine.exit_code and count < last:
            self.runner.owes_validation = True
        else:
            self._validate()

    def _validate_if_owed(self, count: int, last: int) -> None:
        """Run the validation that the interrupted run could not finish."""
        if self.runner.validates_first:
            self.runner.validates_first = False
            self._validate_if_due(count, last)

    def _log_if_over(self, count: int, last: int) -> None:
        """Log that a resumed run has nothing left to do."""
        if count >= last > 0:
            unit = "epochs" if isinstance(self, EpochBasedTrainLoop) else "iters"
            text = f"nothing is left to train: {count} of {last} {unit} are done; train_cfg.max_{unit} can be raised"
            print_log(text, logger="current")

    def _validation_is_due(self, count: int, last: int) -> bool:
        if self.runner.val_loop is None or count < self.val_begin:
            return False
        return count % self.val_interval == 0 or count == last


class EpochBasedTrainLoop(_TrainLoop):
    """Trains by epochs. Validates every ``val_interval`` epochs from ``val_begin`` on, and after the last epoch.

    .. code-block:: text

        before_train
        (before_train_epoch (before_train_iter train_step after_train_iter)* after_train_epoch validation?)*
        after_train
    """

    def __init__(
        self,
        runner: Any,
        dataloader: Any,
        max_epochs: int,
        val_begin: int = 1,
        val_interval: int = 1,
        dynamic_intervals: list[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(runner, dataloader, val_begin, val_interval, dynamic_intervals)
        self._max_epochs = int(max_epochs)
        assert self._max_epochs == max_epochs, f"`max_epochs` should be a integer number, but get {max_epochs}"
        self._max_iters = self._max_epochs * len(self.dataloader)

    def run(self) -> Any:
        self.runner.call_hook("before_train")
        self._log_if_over(self._epoch, self._max_epochs)
        if self._batches_done() == 0:
            self.runner.restore_generators()
            self._validate_if_owed(self._epoch, self._max_epochs)
        while self._epoch < self._max_epochs and not self.stopping:
            epoch = self._epoch
            self.run_epoch()
            if self._epoch > epoch:  # else a signal has ended the epoch in the middle
                self._validate_if_due(self._epoch, self._max_epochs)
        self.runner.call_hook("after_train")
        return self.runner.model

    def run_epoch(self) -> None:
        """Train for one epoch, or for the rest of the one that is resumed."""
        run, begin = self.engine, self._batches_done()
        run.hooks.before_epoch(run)
        self.runner.model.train()
        # Generators come last: hooks and the start of a pass may draw, and the file has the state from after that.
        batches = self.passes.begin(self._epoch, begin)
        self.runner.restore_generators()
        for idx, data_batch in enumerate(batches, start=begin):
            self.run_iter(idx, data_batch)
            if run.stopping and idx + 1 < len(self.dataloader):
                return
        run.hooks.after_epoch(run)
        self._epoch += 1

    def _batches_done(self) -> int:
        """Return how many batches of this epoch are done already: 0 unless a run is resumed inside an epoch."""
        length = len(self.dataloader)
        number, first = self.passes.current or (self._epoch, self._epoch * length)
        ahead = self._iter - first if number == self._epoch else 0
        return ahead if 0 < ahead <= length else 0

    def run_iter(self, idx: int, data_batch: Sequence[dict[str, Any]]) -> None:
        """Train on one batch, the ``idx``-th of the epoch."""
        self._step(idx, data_batch)


class IterBasedTrainLoop(_TrainLoop):
    """Trains by iterations on endless data. ``epoch`` stays 0; epoch hooks are called once, around the whole run."""

    def __init__(
        self,
        runner: Any,
        dataloader: Any,
        max_iters: int,
        val_begin: int = 1,
        val_interval: int = 1000,
        dynamic_intervals: list[tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(runner, dataloader, val_begin, val_interval, dynamic_intervals)
        self._max_iters = int(max_iters)
        assert self._max_iters == max_iters, f"`max_iters` should be a integer number, but get {max_iters}"
        # As in MMEngine: hooks and schedulers that count epochs act once in a run by iterations.
        self._max_epochs = 1
        self.dataloader_iterator = _InfiniteDataloaderIterator(self.dataloader, self.passes)

    def run(self) -> Any:
        run = self.engine
        self.runner.call_hook("before_train")
        self._log_if_over(run.step, self._max_iters)
        run.hooks.before_epoch(run)
        if self._iter > 0:
            self.dataloader_iterator.skip(self._iter)
        self.runner.restore_generators()
        self._validate_if_owed(run.step, self._max_iters)
        batches = self.dataloader_iterator
        while run.step < self._max_iters and not self.stopping:
            if not run.model.training:  # asked first, because train() goes through all modules
                run.model.train()
            self.run_iter(next(batches))
            self._validate_if_due(run.step, self._max_iters)
        run.hooks.after_epoch(run)
        self.runner.call_hook("after_train")
        return self.runner.model

    def run_iter(self, data_batch: Sequence[dict[str, Any]]) -> None:
        """Train on one batch."""
        self._step(self._iter, data_batch)


class _EvaluationLoop(BaseLoop):
    """The base of validation and test loops: one pass over the data. ``mode`` is ``val`` or ``test``."""

    mode: str

    def __init__(self, runner: Any, dataloader: Any, evaluator: Any, fp16: bool = False) -> None:
        super().__init__(runner, dataloader)
        self.evaluator = evaluator if not isinstance(evaluator, dict | list) else runner.build_evaluator(evaluator)
        assert hasattr(self.evaluator, "evaluate"), (
            f"evaluator must be one of dict, list or Evaluator instance, but got {type(evaluator)}"
        )
        dataset: Any = getattr(self.dataloader, "dataset", None)
        if hasattr(dataset, "metainfo"):
            self.evaluator.dataset_meta = dataset.metainfo
            runner.visualizer.dataset_meta = dataset.metainfo
        else:
            log_warning(f"{type(dataset).__name__} has no metainfo: evaluator and visualizer will not know the classes")
        self.fp16 = fp16
        self._losses = ValLosses(self.mode)

    def run(self) -> dict[str, float]:
        """Run all batches through the model and return the metrics of the evaluator."""
        runner, mode = self.runner, self.mode
        runner.call_hook(f"before_{mode}")
        runner.call_hook(f"before_{mode}_epoch")
        metrics = evaluate(self.engine, self.dataloader, self)
        runner.model.eval()  # evaluate() puts its mode back, but hooks of MMEngine find the model in eval mode
        runner.call_hook(f"after_{mode}_epoch", metrics=metrics)
        runner.call_hook(f"after_{mode}")
        return metrics

    # -- called by Étude's evaluate() -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Reset the collected losses and the batch index."""
        self._losses = ValLosses(self.mode)
        self._batch_idx = 0

    def step(self, run: Run, data_batch: Any) -> None:
        """Evaluate one batch."""
        self.run_iter(self._batch_idx, data_batch)
        self._batch_idx += 1

    def end(self) -> dict[str, float]:
        """Return the metrics, and the means of the losses that the model returned beside its predictions."""
        with torch.enable_grad():  # a metric may train something of its own, a probe for example
            metrics: dict[str, float] = self.evaluator.evaluate(len(self.dataloader.dataset))
        if self._losses:
            metrics.update(self._losses.means())
        return metrics

    @torch.no_grad()
    def run_iter(self, idx: int, data_batch: Sequence[dict[str, Any]]) -> None:
        """Give one batch to ``val_step`` or ``test_step``, and the result to the evaluator."""
        call, mode = self.runner.call_hook, self.mode
        call(f"before_{mode}_iter", batch_idx=idx, data_batch=data_batch)
        with autocast(enabled=self.fp16):
            outputs = getattr(self.runner.model, f"{mode}_step")(data_batch)
        outputs = self._losses.take(outputs)
        self.evaluator.process(data_samples=outputs, data_batch=data_batch)
        call(f"after_{mode}_iter", batch_idx=idx, data_batch=data_batch, outputs=outputs)


class ValLoop(_EvaluationLoop):
    """before_val before_val_epoch (before_val_iter val_step after_val_iter)* after_val_epoch after_val"""

    mode = "val"


class TestLoop(_EvaluationLoop):
    """before_test before_test_epoch (before_test_iter test_step after_test_iter)* after_test_epoch after_test"""

    mode = "test"
    __test__ = False


def calc_dynamic_intervals(
    start_interval: int, dynamic_interval_list: list[tuple[int, int]] | None = None
) -> tuple[list[int], list[int]]:
    """Split ``[(start, interval), …]`` into milestones, beginning with 0, and the interval from each of them on."""
    if dynamic_interval_list is None:
        return [0], [start_interval]
    assert all(isinstance(item, tuple) for item in dynamic_interval_list), (
        f"dynamic_intervals should be a list of tuples (start, interval), got {dynamic_interval_list}"
    )
    milestones = [0, *(start for start, _ in dynamic_interval_list)]
    return milestones, [start_interval, *(interval for _, interval in dynamic_interval_list)]


def _parse_losses(losses: dict[str, Any], stage: str) -> dict[str, float]:
    """Return the means of the losses that a validation or test collected (history buffers or lists of numbers)."""
    collected = ValLosses(stage)
    collected.histories = losses
    return collected.means()


def _update_losses(outputs: list[Any], losses: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split a trailing element of losses off ``outputs`` and add it to ``losses``."""
    collected = ValLosses("val")
    collected.histories = losses
    return collected.take(outputs), collected.histories
