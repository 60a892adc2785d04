"""LiBai's trainers (EagerTrainer, GraphTrainer), run by Étude's training loop.

.. code-block:: text

    train(start, max):  with EventStorage:  before_train  ( before_step  run_step  after_step )*  after_train

``after_train`` is always called. ``trainer.iter`` is the current iteration, and ``max_iter`` after the last one. Hooks
act in the order of registration; there are no priorities.
"""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

import torch

from etude.checkpoint.formats.background import all_ours
from etude.config.files import display
from etude.core.hook import Call, Hook, HookTable, Site, origin_of
from etude.core.loop import fit, train_step
from etude.core.run import Run
from etude.dialects.properties import reads
from etude.errors import Diverged, UserCodeError
from etude.errors.advice import raised_in_worker
from etude.hooks.signals import saving_at_signals
from etude_libai.lazy.reading.errors import is_users, put_on
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live.data.position import Batches, batches_of, of_data
from etude_libai.live.events.history import KEPT
from etude_libai.live.events.storage import EventStorage, get_event_storage
from etude_libai.live.optim.build import clip_grad
from etude_libai.live.resume.resume import checkpointer_of, keep_state
from etude_libai.live.resume.state import take_up

LossDict = Mapping[str, Any]
#: Loss, norm of the gradients, batch, and indices of its samples, of a trainer that shows none of them.
_NOTHING_SEEN = (None, None, None, None)


class HookBase:
    """Acts around the steps of a trainer. ``self.trainer`` is the trainer that it is registered with."""

    trainer: Any = None
    #: Whether ``after_step`` is called when a run is resumed whose checkpoint was written before this hook acted.
    finishes_step = False

    def before_train(self) -> None:
        """Act before the first iteration."""

    def after_train(self) -> None:
        """Act after the last iteration, also if training failed."""

    def before_step(self) -> None:
        """Act before each iteration."""

    def after_step(self) -> None:
        """Act after each iteration."""

    def _finish_step(self) -> None:
        """Act once when a run is resumed: this hook had not acted yet in the iteration that wrote the checkpoint."""
        if self.finishes_step:
            self.after_step()


class TrainerBase:
    """A training loop with hooks. Subclasses define one iteration in ``run_step``."""

    storage_class: type[Any] = EventStorage
    hook_class: type[Any] = HookBase
    logger_name = "libai.engine.trainer"

    iter: int = 0
    start_iter: int = 0
    max_iter: int
    storage: Any
    cfg: Any

    #: The index of the hook whose ``after_step`` is running.
    _acting: int | None = None
    #: The state of the checkpoint that this trainer resumes from.
    _left_off: Mapping[str, Any] | None = None
    #: Whether it resumes from a checkpoint of the last iteration: then no step is made.
    _only_finishes = False

    def __init__(self) -> None:
        self._hooks: list[Any] = []

    @property
    def engine(self) -> Run:
        """Return Étude's run of this trainer, made on first use."""
        made: Run | None = self.__dict__.get("_engine")
        if made is None:
            model = getattr(self, "model", None)
            made = Run(model=torch.nn.Identity() if model is None else model, update=self._update, loop=iterations)
            made.runner = self
            made.hooks = HookTable([FaceHook(self)])
            self.__dict__["_engine"] = made
        return made

    @property
    def bytes_beside(self) -> int:
        """Return the estimated size of a checkpoint without model and optimizer.

        It holds generators and data positions of every process, the last values of histories, and states of hooks.
        """
        histories = 8 * (16 * min(KEPT, self.engine.total_steps or KEPT) + 400)
        return 10_000 + histories + 45_000 * topology.get_world_size()

    def _update(self, run: Run, batch: Any) -> None:
        self.run_step()
        run.loss, run.norm, run.batch, run.samples = getattr(self, "_trainer", self).__dict__.get("seen", _NOTHING_SEEN)

    def register_hooks(self, hooks: Iterable[Any]) -> None:
        """Register hooks in the given order. ``None`` is skipped."""
        taken = [hook for hook in hooks if hook is not None]
        for hook in taken:
            if not isinstance(hook, self.hook_class):
                raise _no_hook(hook, self, sys._getframe(1))
            hook.trainer = weakref.proxy(self)  # a hook must not keep its trainer alive
        self._hooks.extend(taken)

    def train(self, start_iter: int, max_iter: int) -> None:
        """Run iterations ``start_iter`` up to ``max_iter``, and the hooks around them."""
        logging.getLogger(self.logger_name).info(f"Starting training from iteration {start_iter}")
        self.iter = self.start_iter = start_iter
        self.max_iter = max_iter
        run = self.engine
        run.loop = iterations
        run.step, run.total_steps = start_iter, max_iter
        run.stopping = run.error = None
        heeded = saving_at_signals(run, processes=topology.get_world_size())
        with self.storage_class(start_iter) as self.storage, heeded:
            # The checkpointer may write while training continues.
            later = getattr(checkpointer_of(self), "later", None)
            with nullcontext() if later is None else later.running(logging.getLogger(self.logger_name).error):
                fit(run)
            keep_state(self)

    def all_is_ours(self) -> bool:
        """Return whether trainer and hooks are all Étude's, so that no user code acts between two steps."""
        return all_ours([self, *self._hooks])

    def stop(self, reason: str = "stopped by a hook") -> None:
        """Stop after this iteration: ``after_train`` is called, a checkpoint is saved, and the reason is logged."""
        self.engine.stop(reason)

    def settle(self) -> None:
        """Wait for metrics that are written in the background. LiBai has none, so this does nothing."""

    def before_train(self) -> None:
        self._call_hooks("before_train")

    def after_train(self) -> None:
        self._call_hooks("after_train")

    def before_step(self) -> None:
        self.storage.iter = self.iter
        self._call_hooks("before_step")

    def after_step(self) -> None:
        samples = self._samples_per_iteration()
        if samples is not None:
            self.storage.samples = (self.iter + 1) * samples
        self._call_hooks("after_step")

    def _call_hooks(self, point: str) -> None:
        for number, hook in enumerate(self._hooks):
            self._acting = number if point == "after_step" else None
            try:
                getattr(hook, point)()
            except Exception as error:
                if not hasattr(error, "etude_hook"):  # with nested hooks, the innermost
                    error.etude_hook = hook  # type: ignore[attr-defined]
                raise
        self._acting = None

    def _samples_per_iteration(self) -> int | None:
        """Return the samples of one iteration; in eager mode a micro-batch per process, not the global batch."""
        own = getattr(self, "global_batch_size", None)
        if own is not None:
            return int(own)
        train = getattr(getattr(self, "cfg", None), "train", None)
        size = getattr(train, "global_batch_size", None)
        return None if size is None else int(size)

    def run_step(self) -> None:
        raise NotImplementedError

    @staticmethod
    def write_metrics(loss_dict: LossDict, data_time: float, prefix: str = "") -> None:
        """Record the losses of an iteration on rank 0, without reading them from the device."""
        if topology.splits():
            loss_dict = {name: dist.ttol(value) for name, value in loss_dict.items()}
        if not topology.is_main_process():
            return
        storage = get_event_storage()
        storage.put_scalar("data_time", data_time)
        values = {name: _detached_mean(value) for name, value in loss_dict.items()}
        storage.put_scalar(f"{prefix}total_loss", sum(value for name, value in values.items() if "loss" in name))
        if len(values) > 1:
            # As in LiBai, without the prefix, and a value of the name total_loss replaces the sum.
            storage.put_scalars(**values)


def _no_hook(given: Any, trainer: TrainerBase, caller: FrameType) -> AssertionError:
    """Return LiBai's ``AssertionError``, with the line that registered the object, for the command line."""
    file, line = caller.f_code.co_filename, caller.f_lineno
    made = getattr(type(trainer), "build_hooks", None)
    if is_users(file):
        where = f"{display(file)}:{line}: register_hooks was given"
    else:
        file, _, number = origin_of(made).rpartition(":")
        where = f"{display(file)}:{number}: {getattr(made, '__qualname__', 'build_hooks')} returned"
    shown = f"the class {given.__name__}" if isinstance(given, type) else f"{type(given).__name__} {given!r:.80}"
    hint = f"; call it: {given.__name__}()" if isinstance(given, type) else ""
    error = AssertionError()
    put_on(error, UserCodeError(f"{where} {shown}, which is not a HookBase{hint}"))
    return error


def iterations(run: Run) -> None:
    """Run the iterations of a trainer. The batch is None, because ``run_step`` loads its own data."""
    trainer, total = run.runner, run.total_steps or 0
    while run.step < total and not run.stopping:
        train_step(run, None)
    # After the last iteration ``iter`` is ``max_iter``, as in LiBai, for hooks that act in ``after_train``.
    if run.step > trainer.start_iter or not trainer._only_finishes:
        trainer.iter += 1


class FaceHook(Hook):
    """Calls the trainer's methods at Étude's points, so that methods which a subclass overrides are called."""

    def __init__(self, trainer: TrainerBase) -> None:
        self.trainer = weakref.proxy(trainer)

    def calls(self) -> Mapping[str, Call]:
        return {
            "before_train": self._naming_hook("before_train", self._before_train),
            "before_step": self._naming_hook("before_step", self._before_step),
            "after_step": self._naming_hook("after_step", lambda run: self.trainer.after_step()),
            "on_error": self._on_error,
            "after_train": self._naming_hook("after_train", self._after_train),
        }

    def _naming_hook(self, point: str, call: Call) -> Call:
        """Wrap ``call``, so that exceptions name the trainer's hook that raised them and not this one."""

        def called(run: Run) -> None:
            try:
                call(run)
            except Exception as error:
                hook = getattr(error, "etude_hook", None)
                if hook is not None and getattr(error, "etude_site", None) is None:
                    kind = type(hook)
                    error.etude_site = Site(kind.__name__, point, run.step, origin_of(kind))  # type: ignore[attr-defined]
                raise

        return called

    def _before_train(self, run: Run) -> None:
        drawn = batches_of(self.trainer)
        if drawn is not None:
            drawn.start()
        self.trainer.before_train()
        if self.trainer._left_off is not None:
            take_up(self.trainer)
        if topology.splits():
            from etude_libai.live.split import random

            random.align()

    def _after_train(self, run: Run) -> None:
        self.trainer.after_train()
        drawn = batches_of(self.trainer)
        if drawn is not None:
            drawn.rest()

    def _before_step(self, run: Run) -> None:
        self.trainer.iter = run.step
        self.trainer.before_step()

    def _on_error(self, run: Run) -> None:
        if isinstance(run.error, Exception):
            in_worker = raised_in_worker(run.error)
            if in_worker is not None:
                put_on(run.error, in_worker)
            log_error(logging.getLogger(self.trainer.logger_name), "Exception during training:", run.error)


def log_error(logger: logging.Logger, words: str, error: Exception) -> None:
    """Log an exception with its traceback; without it for a loss that is not finite, which no line of code raised."""
    diverged = isinstance(getattr(error, "etude_reported", None), Diverged)
    logger.error(words, exc_info=(type(error), error, None if diverged else error.__traceback__))


class EagerTrainer(TrainerBase):
    """Trains on one micro-batch per iteration. The optimizer steps every ``grad_acc_steps`` iterations."""

    def __init__(
        self,
        model: torch.nn.Module,
        data_loader: Iterable[Any],
        optimizer: Any,
        grad_acc_steps: int = 1,
        *,
        amp: Amp | None = None,
    ) -> None:
        super().__init__()
        model.train()
        self.model, self.data_loader, self.optimizer = model, data_loader, optimizer
        self._data_loader_iter = Batches(data_loader, at_once=True)
        self.grad_acc_steps = grad_acc_steps
        self.amp = amp or Amp()

    def run_step(self, get_batch: Callable[..., Any], input_placement_device: str = "cuda") -> None:  # type: ignore[override]
        assert self.model.training, "[SimpleTrainer] model was changed to eval mode!"
        start = time.perf_counter()
        with of_data():
            data = get_batch(
                next(self._data_loader_iter), input_placement_device, getattr(self.data_loader, "mixup_func", None)
            )
        data_time = time.perf_counter() - start
        with self.amp.autocast():
            loss_dict = self.model(**data)
            losses = total_loss(loss_dict) / self.grad_acc_steps
        self.amp.backward(losses)
        self.write_metrics(loss_dict, data_time)
        norm = self.amp.update(self.optimizer) if (self.iter + 1) % self.grad_acc_steps == 0 else None
        self.seen = losses.detach(), norm, data, _samples(self._data_loader_iter)


class GraphTrainer(TrainerBase):
    """Calls the graph once per iteration: ``grad_acc_steps`` micro-batches and one update."""

    def __init__(self, graph: Any, data_loader: Iterable[Any], grad_acc_steps: int = 1) -> None:
        super().__init__()
        graph.model.train()
        self.graph, self.data_loader, self.grad_acc_steps = graph, data_loader, grad_acc_steps
        self._data_loader_iter = Batches(data_loader, at_once=True)

    model: Any = reads("graph.model")

    def run_step(self, get_batch: Callable[..., Any], input_placement_device: str = "cuda") -> None:  # type: ignore[override]
        assert self.graph.model.training, "[SimpleTrainer] model was changed to eval mode!"
        start = time.perf_counter()
        with of_data():
            drawn = [next(self._data_loader_iter) for _ in range(self.grad_acc_steps)]
            mixup = getattr(self.data_loader, "mixup_func", None)
            batches = [get_batch(batch, input_placement_device, mixup) for batch in drawn]
        data_time = time.perf_counter() - start
        returned = (
            self.graph.train_on(batches) if _takes_batches(self.graph) else self.graph(**_concatenate_batches(batches))
        )
        # As in LiBai, whose graph returns one value per micro-batch.
        loss_dict = {name: value.mean() if "loss" in name else value.sum() for name, value in returned.items()}
        self.write_metrics(loss_dict, data_time)
        total = total_loss({name: value.detach() for name, value in loss_dict.items()})
        self.seen = total, None, batches, _samples(self._data_loader_iter)


def _samples(batches: Any) -> Any:
    return batches.samples() if isinstance(batches, Batches) else None


class Amp:
    """Mixed precision as in LiBai's graph: fp16 with a scaler on CUDA, bf16 elsewhere. Off by default."""

    def __init__(self, *, enabled: bool = False, device: str = "cpu", data_parallel_size: int = 1) -> None:
        self.enabled, self.device = enabled, torch.device(device).type
        self.scaler: Any = None
        if enabled and self.device == "cuda":
            # LiBai's initial scale, which grows with the number of data-parallel processes.
            self.scaler = torch.amp.GradScaler("cuda", init_scale=65536.0 * data_parallel_size)

    def autocast(self) -> AbstractContextManager[Any]:
        if not self.enabled:
            return nullcontext()
        dtype = torch.float16 if self.device == "cuda" else torch.bfloat16
        return torch.autocast(self.device, dtype=dtype)

    def backward(self, loss: Any) -> None:
        """Compute the gradients of ``loss``, which is scaled in half precision."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def update(self, optimizer: Any) -> Any:
        """Clip the gradients, step, and clear the gradients. Return their norm before, if they were clipped by it."""
        if self.scaler is None:
            norm = clip_grad(optimizer)
            optimizer.step()
        else:
            self.scaler.unscale_(optimizer)
            norm = clip_grad(optimizer)
            self.scaler.step(optimizer)
            self.scaler.update()
        optimizer.zero_grad()
        return norm


class NoLoss(UserCodeError, AttributeError):
    """A model returned no loss. This is an ``AttributeError``, too, because LiBai raises one then."""


def total_loss(loss_dict: LossDict) -> Any:
    """Return the sum of all values with ``loss`` in their name, which is what LiBai minimises."""
    losses = [value for name, value in loss_dict.items() if "loss" in name]
    if not losses:
        returned = ", ".join(map(str, loss_dict)) or "nothing"
        raise NoLoss(f"the model returned no loss: what has 'loss' in its name is learnt from; it returned {returned}")
    return sum(losses)


def _takes_batches(graph: Any) -> bool:
    """Return whether a graph takes micro-batches one by one. Those of split tensors are not concatenated."""
    return topology.splits() and hasattr(graph, "train_on")


def _concatenate_batches(batches: list[Mapping[str, Any]]) -> dict[str, Any]:
    if len(batches) == 1:
        return dict(batches[0])
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def _detached_mean(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    return value if value.numel() == 1 else value.mean()
