"""Runs epochs and steps, and calls the hooks at every point. A loop is a function of the run; you can bring your own.

.. code-block:: text

    fit(run):   before_run  before_train  run.loop  after_train  after_run
    epochs:     ( before_epoch  step*  after_epoch )*
    steps:      the same with a length in steps; an epoch may be cut short by the end
    workflow:   ("train", 2), ("val", 1): epochs of training and of validation losses in turn
    a step:     before_step  update  after_step  step += 1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from etude.core.returned import note_step
from etude.core.run import Run
from etude.core.update import read_losses
from etude.errors import ConfigError, Stopped


def train(run: Run) -> None:
    """Train a run: with the runner of its dialect if that sets ``run.train_fn``, else with :func:`fit`."""
    (run.train_fn or fit)(run)


def fit(run: Run) -> None:
    """Train from the current counters on.

    Once ``before_run`` has passed, ``after_train`` is always called, once per hook. ``after_run`` is called only if
    nothing failed.
    """
    run.hooks.before_run(run)
    switch(run, "train")
    try:
        run.hooks.before_train(run)
        run.loop(run)
        read_losses(run)
    except BaseException as error:
        _fail(run, error)
        raise
    _finish(run)


def _fail(run: Run, error: BaseException) -> None:
    run.error = error
    run.hooks.on_error.each(run, during=error)
    run.hooks.after_train.each(run, during=error)


def _finish(run: Run) -> None:
    try:
        run.hooks.after_train.each(run)
    except Stopped as stop:
        run.error = stop
        run.hooks.on_error.each(run, during=stop)
        raise
    run.hooks.after_run(run)


def epochs(run: Run) -> None:
    """Train whole passes over ``run.data["train"]`` until ``run.max_epochs``."""
    while not _ended(run):
        train_epoch(run, run.data["train"])


def steps(run: Run) -> None:
    """Train until ``run.total_steps``; the data starts again as often as needed."""
    if run.total_steps is None:
        raise ConfigError("a loop over steps needs a number of steps")
    loader = run.data["train"]
    while (run.step < run.total_steps or run.step_in_epoch) and (not run.stopping or _owes_end(run)):
        before, fresh = run.step, run.step_in_epoch == 0
        train_epoch(run, loader)
        if fresh and run.step == before and not run.stopping:
            raise ConfigError("the training data gave no batch")


class Workflow:
    """Alternates epochs of training and of validation; a validation epoch records losses and changes nothing."""

    def __init__(self, flow: Sequence[tuple[str, int]] = (("train", 1),)) -> None:
        self.flow = [(str(mode), int(count)) for mode, count in flow]
        if not any(mode == "train" and count > 0 for mode, count in self.flow):
            raise ConfigError("a workflow needs a ('train', n) with n > 0")
        self.position = 0
        self._run: Run | None = None

    def __call__(self, run: Run) -> None:
        self._run = run
        turns = [mode for mode, count in self.flow for _ in range(count)]
        while not _ended(run):
            mode = turns[self.position % len(turns)]
            if mode == "train":
                train_epoch(run, run.data["train"])
                if run.stopping and run.step_in_epoch:
                    return
            else:
                run.evaluation.losses(run, run.data[mode])
            self.position = (self.position + 1) % len(turns)

    def state_dict(self) -> dict[str, Any]:
        """Return the turn to resume with. A save at ``after_epoch`` sees the current turn as finished and does not
        repeat it."""
        finished = self._run is not None and self._run.stage == "after_epoch"
        return {"position": self.position + int(finished)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = int(state["position"])


def train_epoch(run: Run, loader: Iterable[Any]) -> None:
    """Train one pass over the data, or the rest of it if ``run.step_in_epoch`` says that a part is done.

    After a resume from a save of the epoch's last step that rest is empty, and only ``after_epoch`` is left to do.
    """
    run.model.train()
    if run.step_in_epoch == 0:
        run.hooks.before_epoch(run)
    run.stage = "data"
    for batch in () if _complete(run) or _owes_end(run) else batches(run, loader):
        train_step(run, batch)
        if run.stopping or _complete(run):
            break
    # An epoch whose last step is done gets its end, also in a run that stops.
    if run.stopping and not _owes_end(run):
        run.stage = ""
        return
    run.stage = "after_epoch"
    run.hooks.after_epoch(run)
    run.epoch, run.step_in_epoch, run.stage = run.epoch + 1, 0, ""


def train_step(run: Run, batch: Any) -> None:
    """Pass one batch through the update, and call the hooks around it."""
    run.batch, run.stage = batch, "step"
    run.hooks.before_step(run)
    try:
        run.outputs = run.update(run, batch)
    except Exception as error:
        note_step(error, run)
        raise
    run.stage = "after_step"
    run.hooks.after_step(run)
    run.step, run.step_in_epoch, run.stage = run.step + 1, run.step_in_epoch + 1, "data"


def batches(run: Run, loader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of this epoch from the current position on, at most ``run.steps_per_epoch`` in all."""
    set_epoch = getattr(loader, "set_epoch", None)
    if set_epoch is not None:
        set_epoch(run.epoch)
    if run.steps_per_epoch is None:
        return iter(loader)
    return islice(loader, max(0, run.steps_per_epoch - run.step_in_epoch))


@torch.no_grad()
def evaluate(
    run: Run, loader: Iterable[Any], evaluation: Any, also: Mapping[str, Iterable[Any]] | None = None
) -> dict[str, float]:
    """Run one pass without training. Model and schedule-free optimizers switch to eval mode, and back afterwards.

    The results of passes over ``also`` are among those of ``loader``, as ``name/result``. ``evaluation`` has
    ``begin()``, ``step(run, batch)`` and ``end() -> dict``.
    """
    if run.peers is not None:
        run.peers.align(run.model)
    if run.store is not None:
        run.store.snapshot_before_evaluation(run)
    training, own = run.model.training, (run.batch, run.outputs)
    outer, run.acting = run.acting, "evaluation"
    switch(run, "eval")
    run.model.eval()
    try:
        run.hooks.before_eval(run)
        others = {name: _passed(run, other, evaluation) for name, other in (also or {}).items()}
        prefixed = {f"{name}/{key}": value for name, found in others.items() for key, value in found.items()}
        run.metrics = {**_passed(run, loader, evaluation), **prefixed}
        run.hooks.after_eval(run)
    finally:
        run.model.train(training)
        if training:
            switch(run, "train")
        run.acting = outer
    if run.stage == "after_step":
        run.batch, run.outputs = own  # the hooks that come after it look at the step, not at the evaluation
    return run.metrics


def _passed(run: Run, loader: Iterable[Any], evaluation: Any) -> dict[str, float]:
    """Return the results of one pass over the data."""
    evaluation.begin()
    evaluation.loader = loader
    for batch in loader:
        run.batch = batch
        run.hooks.before_eval_step(run)
        run.outputs = evaluation.step(run, batch)
        run.hooks.after_eval_step(run)
    return evaluation.end()  # type: ignore[no-any-return]


def switch(run: Run, mode: str) -> None:
    """Call ``train()`` or ``eval()`` of the optimizers that have both: schedule-free ones evaluate with other
    weights."""
    for optimizer in run.optimizers.values():
        if hasattr(optimizer, "eval") and hasattr(optimizer, "train"):
            getattr(optimizer, mode)()


def _ended(run: Run) -> bool:
    """Return whether a loop over epochs has nothing left to do."""
    if run.max_epochs is not None and run.epoch >= run.max_epochs:
        return True
    return bool(run.stopping and not _owes_end(run)) or (_complete(run) and run.step_in_epoch == 0)


def _owes_end(run: Run) -> bool:
    """Return whether all steps of the epoch are done and only ``after_epoch`` is left.

    A run that resumes from a save of the epoch's last step starts like this.
    """
    return run.step_in_epoch > 0 and run.step_in_epoch == run.steps_per_epoch


def _complete(run: Run) -> bool:
    return run.total_steps is not None and run.step >= run.total_steps
