"""detectron2's trainers: SimpleTrainer and AMPTrainer. All values that the model returns are losses."""

from __future__ import annotations

import concurrent.futures
import logging
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from etude.errors import Diverged
from etude_libai.files import PeriodicCheckpointer
from etude_libai.lazy.reading.errors import put_on
from etude_libai.live import distributed as dist
from etude_libai.live import topology
from etude_libai.live import trainer as shared
from etude_libai.live.data import position
from etude_libai.live.detectron.hooks.writers import EventStorage
from etude_libai.live.events.storage import get_event_storage
from etude_libai.live.resume.state import moment, own_part, restore_hooks
from etude_libai.live.trainer import log_error

#: The key of Étude's own entry in the trainer's state.
ETUDE = "etude"


class HookBase(shared.HookBase):
    def after_backward(self) -> None:
        """Act after the backward pass of each iteration, before the optimizer steps."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint; by default nothing."""
        return {}


class TrainerBase(shared.TrainerBase):
    storage_class = EventStorage
    hook_class = shared.HookBase
    logger_name = "detectron2.engine.train_loop"
    #: Whether all processes save together, so that each can contribute its random generators.
    saves_together = False

    def __init__(self) -> None:
        super().__init__()
        self.iter = 0
        self.start_iter = 0
        self._outer: Any = None

    def after_train(self) -> None:
        self.storage.iter = self.iter
        super().after_train()

    def after_step(self) -> None:
        self._call_hooks("after_step")

    def after_backward(self) -> None:
        """Call the hooks between backward and step, including those of an outer trainer."""
        for hook in self._hooks:
            hook.after_backward()
        if self._outer is not None:
            self._outer.after_backward()

    def surround(self, outer: TrainerBase) -> None:
        """Set the outer trainer, whose steps this trainer makes: its hooks act after backward, too."""
        self._outer = weakref.proxy(outer)

    def settle(self) -> None:
        """Wait until metrics that are written in the background are recorded."""
        inner = getattr(self, "_trainer", None)
        if isinstance(inner, TrainerBase):
            inner.settle()

    def state_dict(self) -> dict[str, Any]:
        self.settle()
        state: dict[str, Any] = {"iteration": self.iter}
        of_hooks: dict[str, Any] = {}
        for hook in self._hooks:
            own = hook.state_dict() if hasattr(hook, "state_dict") and not _is_ours(hook) else {}
            name = type(hook).__qualname__
            if own and name not in of_hooks:  # as in detectron2, only the first hook of a class
                of_hooks[name] = own
        if of_hooks:
            state["hooks"] = of_hooks
        return {**state, ETUDE: moment(self, gather=self._all_are_here(), hooks=_is_ours)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        logger = logging.getLogger(self.logger_name)
        self.iter = state_dict["iteration"]
        self._restore(state_dict.get(ETUDE))
        for name, value in state_dict.get("hooks", {}).items():
            hook = next((hook for hook in self._hooks if type(hook).__qualname__ == name), None)
            if hook is None:
                logger.warning(f"Cannot find the hook '{name}', its state_dict is ignored.")
            elif hasattr(hook, "load_state_dict"):
                hook.load_state_dict(value)

    def _all_are_here(self) -> bool:
        """Return whether all processes are saving now, in the checkpoint hook (see :attr:`saves_together`)."""
        acting = None if self._acting is None else self._hooks[self._acting]
        return self.saves_together and isinstance(acting, PeriodicCheckpointer)

    def _restore(self, left_off: Mapping[str, Any] | None) -> None:
        """Restore Étude's entry of a checkpoint: hooks and data now, generators and records when training begins."""
        if left_off is None:
            return
        self._left_off = left_off
        restore_hooks(self, left_off["hooks"])
        seen = (own_part(left_off) or {}).get("data")
        loader = getattr(self, "data_loader", None)
        if seen is not None and loader is not None:
            position.begin_at(loader, seen)


def _divergence_error(iteration: int, losses: Mapping[str, float]) -> FloatingPointError:
    """Return detectron2's error for a loss that is not finite, with a message for the command line."""
    error = FloatingPointError(f"Loss became infinite or NaN at iteration={iteration}!\nloss_dict = {losses}")
    named = ", ".join(f"{name} {value:.4g}" for name, value in losses.items())
    put_on(
        error, Diverged(f"the loss is not finite at iteration {iteration} ({named}); a lower learning rate may help")
    )
    return error


def _is_ours(hook: Any) -> bool:
    """Return whether Étude saves the state of this hook; detectron2 saves none for it."""
    return bool(getattr(hook, "remembers", False))


class SimpleTrainer(TrainerBase):
    """Makes one update from one batch per iteration."""

    _label = "SimpleTrainer"

    def __init__(
        self,
        model: torch.nn.Module,
        data_loader: Iterable[Any],
        optimizer: Any,
        gather_metric_period: int = 1,
        zero_grad_before_forward: bool = False,
        async_write_metrics: bool = False,
    ) -> None:
        super().__init__()
        model.train()
        self.model, self.data_loader, self.optimizer = model, data_loader, optimizer
        self._data_loader_iter_obj: Iterator[Any] | None = None
        self.gather_metric_period = gather_metric_period
        self.zero_grad_before_forward = zero_grad_before_forward
        self.async_write_metrics = async_write_metrics
        self.concurrent_executor = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self._being_written: concurrent.futures.Future[None] | None = None

    @property
    def _data_loader_iter(self) -> Iterator[Any]:
        if self._data_loader_iter_obj is None:
            self._data_loader_iter_obj = position.Batches(self.data_loader)
        return self._data_loader_iter_obj

    def reset_data_loader(self, data_loader_builder: Callable[[], Iterable[Any]]) -> None:
        """Continue with other data. The old loader is freed before the new one is made."""
        del self.data_loader
        self.data_loader = data_loader_builder()
        self._data_loader_iter_obj = None

    def run_step(self) -> None:
        assert self.model.training, f"[{self._label}] model was changed to eval mode!"
        start = time.perf_counter()
        data = next(self._data_loader_iter)
        data_time = time.perf_counter() - start
        if self.zero_grad_before_forward:
            self.optimizer.zero_grad()
        losses, loss_dict = self._losses_of(data)
        # As in detectron2, between forward and backward.
        if not self.zero_grad_before_forward:
            self.optimizer.zero_grad()
        self._compute_gradients(losses)
        self.after_backward()
        self._record(loss_dict, data_time)
        self._update_weights()
        order = self._data_loader_iter
        self.seen = losses.detach(), None, data, order.samples() if isinstance(order, position.Batches) else None

    # The names of the steps are private ones that subclasses in scripts will not have.
    def _losses_of(self, data: Any) -> tuple[Any, dict[str, Any]]:
        return _losses(self.model(data))

    def _compute_gradients(self, losses: Any) -> None:
        losses.backward()

    def _update_weights(self) -> None:
        self.optimizer.step()

    def _record(self, loss_dict: Mapping[str, Any], data_time: float) -> None:
        if self.async_write_metrics:
            self._being_written = self.concurrent_executor.submit(
                self._write_metrics, loss_dict, data_time, iter=self.iter
            )
        else:
            self._write_metrics(loss_dict, data_time)

    def _write_metrics(
        self, loss_dict: Mapping[str, Any], data_time: float, prefix: str = "", iter: int | None = None
    ) -> None:
        iteration = self.iter if iter is None else iter
        if (iteration + 1) % self.gather_metric_period == 0:
            try:
                SimpleTrainer.write_metrics(loss_dict, data_time, iteration, prefix)
            except Exception as error:  # in a background thread nothing else would report it
                log_error(logging.getLogger(self.logger_name), "Exception in writing metrics: ", error)
                raise

    @staticmethod
    def write_metrics(  # type: ignore[override]
        loss_dict: Mapping[str, Any], data_time: float, cur_iter: int, prefix: str = ""
    ) -> None:
        """Record the means over processes. Raises an error if the total is not finite."""
        storage = get_event_storage()
        storage.put_scalar("rank_data_time", data_time, cur_iter=cur_iter)
        own = {name: float(value) for name, value in loss_dict.items()}
        gathered = dist.gather({**own, "data_time": data_time})
        if not topology.is_main_process():
            return
        storage.put_scalar("data_time", max(metrics.pop("data_time") for metrics in gathered), cur_iter=cur_iter)
        means = {name: float(np.mean([metrics[name] for metrics in gathered])) for name in gathered[0]}
        total = sum(means.values())
        if not np.isfinite(total):
            raise _divergence_error(cur_iter, means)
        storage.put_scalar(f"{prefix}total_loss", total, cur_iter=cur_iter)
        if len(means) > 1:
            storage.put_scalars(cur_iter=cur_iter, **means)

    def settle(self) -> None:
        if self._being_written is not None:
            concurrent.futures.wait([self._being_written])

    def after_train(self) -> None:
        super().after_train()
        self.concurrent_executor.shutdown(wait=True)
        self.concurrent_executor = concurrent.futures.ThreadPoolExecutor(max_workers=1)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.optimizer.load_state_dict(state_dict["optimizer"])


class AMPTrainer(SimpleTrainer):
    """Trains as :class:`SimpleTrainer`, in half precision on CUDA."""

    _label = "AMPTrainer"

    def __init__(
        self,
        model: torch.nn.Module,
        data_loader: Iterable[Any],
        optimizer: Any,
        gather_metric_period: int = 1,
        zero_grad_before_forward: bool = False,
        grad_scaler: Any = None,
        precision: torch.dtype = torch.float16,
        log_grad_scaler: bool = False,
        async_write_metrics: bool = False,
    ) -> None:
        super().__init__(model, data_loader, optimizer, gather_metric_period, zero_grad_before_forward)
        self.async_write_metrics = async_write_metrics
        self.grad_scaler = torch.amp.GradScaler("cuda") if grad_scaler is None else grad_scaler
        self.precision, self.log_grad_scaler = precision, log_grad_scaler

    def run_step(self) -> None:
        assert torch.cuda.is_available(), "[AMPTrainer] CUDA is required for AMP training!"
        super().run_step()

    def _losses_of(self, data: Any) -> tuple[Any, dict[str, Any]]:
        with torch.autocast("cuda", dtype=self.precision):
            return super()._losses_of(data)

    def _compute_gradients(self, losses: Any) -> None:
        self.grad_scaler.scale(losses).backward()
        if self.log_grad_scaler:
            self.storage.put_scalar("[metric]grad_scaler", self.grad_scaler.get_scale())

    def _update_weights(self) -> None:
        self.grad_scaler.step(self.optimizer)
        self.grad_scaler.update()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "grad_scaler": self.grad_scaler.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.grad_scaler.load_state_dict(state_dict["grad_scaler"])


def _losses(returned: Any) -> tuple[Any, dict[str, Any]]:
    """Return the loss to minimise, and the values to record."""
    if isinstance(returned, torch.Tensor):
        return returned, {"total_loss": returned.detach()}
    shown = {name: value.detach() if isinstance(value, torch.Tensor) else value for name, value in returned.items()}
    return sum(returned.values()), shown
