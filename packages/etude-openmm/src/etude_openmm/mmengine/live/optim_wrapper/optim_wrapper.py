"""MMEngine's OptimWrapper, through which models and hooks use an optimizer: backward, accumulation, clipping, step."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype

from etude.dialects.properties import reads
from etude_openmm.mmengine.live.logging.message_hub import MessageHub
from etude_openmm.shared.logging import log_warning
from etude_openmm.shared.torch_utils import has_batch_norm

_DEVICES = frozenset({"cpu", "cuda"})
_NOTHING: AbstractContextManager[None] = nullcontext()


class BaseOptimWrapper(metaclass=ABCMeta):
    """Wraps an optimizer. Subclasses implement ``update_params`` and its parts: backward, step and zero_grad."""

    #: With several parameter groups: a virtual group that shows the schedule without multipliers, for the log.
    base_param_settings: dict[str, Any] | None = None

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        if optimizer is not None and len(optimizer.param_groups) > 1:
            self.base_param_settings = {"params": torch.tensor([0.0]), **optimizer.defaults}

    @abstractmethod
    def update_params(self, *args: Any, **kwargs: Any) -> None:
        """Update the parameters from a loss."""

    @abstractmethod
    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Compute gradients from a loss."""

    @abstractmethod
    def zero_grad(self, **kwargs: Any) -> None:
        """Clear the gradients."""

    @abstractmethod
    def step(self, **kwargs: Any) -> None:
        """Update the parameters from their gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state, with the virtual base group if there is one."""
        state: dict[str, Any] = self.optimizer.state_dict()
        if self.base_param_settings is not None:
            state["base_param_settings"] = self.base_param_settings
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state of :meth:`state_dict`, without changing the given dict."""
        state = dict(state_dict)
        base = state.pop("base_param_settings", None)
        if base is not None:
            self.base_param_settings = dict(base)
        self.optimizer.load_state_dict(state)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return the optimizer's groups and, behind them, the virtual base group."""
        groups = self.optimizer.param_groups
        return groups if self.base_param_settings is None else [*groups, self.base_param_settings]

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the optimizer's default options."""
        defaults: dict[str, Any] = self.optimizer.defaults
        return defaults

    def get_lr(self) -> dict[str, list[float]]:
        """Return ``lr`` of every group, preceded by ``base_lr`` if there are several groups."""
        rates: dict[str, list[float]] = {}
        if self.base_param_settings is not None:
            rates["base_lr"] = [self.base_param_settings["lr"]]
        rates["lr"] = [group["lr"] for group in self.optimizer.param_groups]
        return rates

    def get_momentum(self) -> dict[str, list[float]]:
        """Return ``momentum`` of every group: its ``momentum``, the first of its ``betas``, or 0."""
        return {"momentum": [_momentum(group) for group in self.optimizer.param_groups]}

    def optim_context(self, model: torch.nn.Module) -> AbstractContextManager[Any]:
        """Return the context manager for preprocessing and forward."""
        return _NOTHING

    def initialize_count_status(self, model: torch.nn.Module, init_counts: int, max_counts: int) -> None:
        """Set how many iterations were made and how many there will be. Wrappers that count override it."""
        return


def clip_norm(params: Sequence[Tensor], max_norm: float, norm_type: float | str = 2.0, **options: Any) -> Tensor:
    """Clip the gradients of ``params``, which all have one, and return their norm before.

    The numbers are those of torch's ``clip_grad_norm_``, to the bit. Gradients of one dtype on one device go straight
    to the kernels, which saves Python calls; others go through torch's function.
    """
    grads: list[Any] = [param.grad for param in params]
    if options or not _are_alike(grads):
        return clip_grad_norm_(params, max_norm, norm_type, **options)  # type: ignore[arg-type]
    order = float(norm_type)
    with torch.no_grad():
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads, order)), order)
        # 1e-6 and the order of operations are those of torch's function.
        torch._foreach_mul_(grads, torch.clamp(float(max_norm) / (norm + 1e-6), max=1.0))
    return norm


def _are_alike(grads: list[Tensor]) -> bool:
    if any(type(grad) is not Tensor for grad in grads) or grads[0].device.type not in _DEVICES:
        return False
    return len(_group_tensors_by_device_and_dtype([grads])) == 1  # type: ignore[list-item]


_CLIPS: dict[str, tuple[Callable[..., Any], str]] = {
    "norm": (clip_grad_norm_, "grad_norm"),
    "value": (clip_grad_value_, "grad_value"),
}


class OptimWrapper(BaseOptimWrapper):
    """Updates parameters: ``update_params(loss)`` scales, runs backward and, once enough batches came, clips and steps.

    ``accumulative_counts`` batches make one step. The last group of a run may be smaller; its losses are divided by
    its own size, and the last batch of a run always steps. ``clip_grad`` takes ``type`` (``norm`` or ``value``) and
    the arguments of torch's function of that kind.
    """

    def __init__(
        self, optimizer: Optimizer, accumulative_counts: int = 1, clip_grad: dict[str, Any] | None = None
    ) -> None:
        assert accumulative_counts > 0, "_accumulative_counts at least greater than or equal to 1"
        assert isinstance(optimizer, Optimizer), f"optimizer should be a torch Optimizer, got {type(optimizer)}"
        super().__init__(optimizer)
        self._accumulative_counts = accumulative_counts
        self.clip_grad_kwargs: dict[str, Any] | None = None
        if clip_grad is not None:
            self._read_clip(clip_grad)
        self.message_hub = MessageHub.get_current_instance()
        self._inner_count = 0
        self._max_counts = -1
        self._remainder_counts = -1

    #: The norm of the gradients before the last clipping by norm or value, until the run has taken it.
    norm: torch.Tensor | None = None

    def _read_clip(self, clip_grad: dict[str, Any]) -> None:
        assert isinstance(clip_grad, dict) and clip_grad, (
            "If `clip_grad` is not None, it should be a `dict` of arguments, and not an empty one"
        )
        options = dict(clip_grad)
        kind = options.pop("type", "norm")
        if kind not in _CLIPS:
            raise ValueError(f'type of clip_grad should be "norm" or "value" but got {kind}')
        assert options, "`clip_grad` should contain other arguments besides `type`"
        self.clip_func, self.grad_name = _CLIPS[kind]
        self.clip_grad_kwargs = options

    # -- one batch -----------------------------------------------------------------------------------------------

    def update_params(
        self,
        loss: torch.Tensor,
        step_kwargs: dict[str, Any] | None = None,
        zero_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.backward(self.scale_loss(loss))
        if self.should_update():
            self.step(**(step_kwargs or {}))
            self.zero_grad(**(zero_kwargs or {}))

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        loss.backward(**kwargs)  # type: ignore[no-untyped-call]
        self._inner_count += 1

    def zero_grad(self, **kwargs: Any) -> None:
        optimizer = self.optimizer
        kind = type(optimizer)
        overridden = getattr(kind, "zero_grad", None) is not Optimizer.zero_grad or "zero_grad" in vars(optimizer)
        if overridden or kwargs:
            optimizer.zero_grad(**kwargs)
            return
        for group in optimizer.param_groups:  # as torch does, without its profiler mark, which costs more
            for param in group["params"]:
                param.grad = None

    def step(self, **kwargs: Any) -> None:
        if self.clip_grad_kwargs:
            self._clip_grad()
        self.optimizer.step(**kwargs)

    def optim_context(self, model: torch.nn.Module) -> AbstractContextManager[Any]:
        if self._accumulative_counts == 1 or self.should_sync() or not hasattr(model, "no_sync"):
            return _NOTHING
        waiting: AbstractContextManager[Any] = model.no_sync()  # type: ignore[operator]
        return waiting

    def _clip_grad(self) -> None:
        params = _with_gradients(self.optimizer)
        if params:
            clip = clip_norm if self.clip_func is clip_grad_norm_ else self.clip_func
            norm = clip(params, **(self.clip_grad_kwargs or {}))
            if norm is not None:
                self.norm = norm.detach()
                self.message_hub.buffer(f"train/{self.grad_name}").append(norm)

    # -- counting ------------------------------------------------------------------------------------------------

    def initialize_count_status(self, model: torch.nn.Module, init_counts: int, max_counts: int) -> None:
        self._inner_count, self._max_counts = init_counts, max_counts
        unfinished = init_counts % self._accumulative_counts != 0
        if unfinished and not _with_gradients(self.optimizer):  # Étude's checkpoints restore them
            log_warning(
                f"Resumed iteration number is not divisible by `_accumulative_counts`: {init_counts} by "
                f"{self._accumulative_counts}; the gradients of the unfinished group are lost"
            )
        if self._accumulative_counts > 1 and has_batch_norm(model):
            log_warning(
                "Gradient accumulative may slightly decrease performance: BatchNorm layers see one small batch "
                "at a time"
            )
        self._remainder_counts = max_counts % self._accumulative_counts

    def should_update(self) -> bool:
        """Return whether the last backward completes a group of accumulated batches."""
        return self._inner_count % self._accumulative_counts == 0 or self._inner_count == self._max_counts

    def should_sync(self) -> bool:
        """Return whether the next batch completes a group, so that DDP has to synchronise gradients."""
        coming = self._inner_count + 1
        return coming % self._accumulative_counts == 0 or coming == self._max_counts

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """Divide the loss by the size of its group of accumulated batches."""
        if self._accumulative_counts == 1:
            return loss
        factor = self._accumulative_counts
        if self._max_counts != -1 and self._inner_count >= self._max_counts - self._remainder_counts:
            factor = self._remainder_counts
            assert factor > 0, (
                "loss_factor should be larger than zero: more iterations than initialize_count_status was given"
            )
        return loss / factor

    #: The number of backward passes.
    inner_count: int = reads("_inner_count")

    def __repr__(self) -> str:
        counts = f"_accumulative_counts: {self._accumulative_counts}"
        return f"Type: {type(self).__name__}\n{counts}\noptimizer: \n{self.optimizer!r}\n"


def _with_gradients(optimizer: Optimizer) -> list[torch.Tensor]:
    return [
        param
        for group in optimizer.param_groups
        for param in group["params"]
        if param.requires_grad and param.grad is not None
    ]


def _momentum(group: Mapping[str, Any]) -> float:
    if "momentum" in group:
        return float(group["momentum"])
    return float(group["betas"][0]) if "betas" in group else 0.0
