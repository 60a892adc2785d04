"""AmpOptimWrapper: automatic mixed precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from etude.errors import OutOfScope
from etude_openmm.mmengine.live.device import autocast, default_device
from etude_openmm.mmengine.live.optim_wrapper.optim_wrapper import OptimWrapper

_DTYPES = ("float16", "bfloat16", "float32", "float64")


class AmpOptimWrapper(OptimWrapper):
    """Runs forward under autocast and backward with a scaled loss.

    ``loss_scale`` is ``'dynamic'``, a number (a scale that never changes) or the arguments of torch's ``GradScaler``.
    ``dtype`` is a name. The default is float16 on accelerators and bfloat16 on the CPU.
    """

    valid_dtypes = _DTYPES

    def __init__(
        self,
        loss_scale: str | float | dict[str, Any] | None = "dynamic",
        dtype: str | torch.dtype | None = None,
        use_fsdp: bool = False,
        **kwargs: Any,
    ) -> None:
        if isinstance(dtype, torch.dtype):
            dtype = str(dtype).removeprefix("torch.")
        assert dtype is None or dtype in _DTYPES, f"dtype should be any of {_DTYPES}, got {dtype!r}"
        super().__init__(**kwargs)
        self._scale_update_param: float | None = None  # a fixed scale, set again after each step so that it stays
        self.loss_scaler = self._scaler(loss_scale, use_fsdp)
        self.cast_dtype: torch.dtype | None = getattr(torch, dtype) if dtype is not None else None

    def _scaler(self, loss_scale: Any, use_fsdp: bool) -> Any:
        device = default_device()
        scaler: Any = torch.amp.GradScaler
        if use_fsdp:
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as scaler
        if loss_scale == "dynamic":
            return scaler(device)
        if isinstance(loss_scale, float | int) and not isinstance(loss_scale, bool):
            self._scale_update_param = float(loss_scale)
            return scaler(device, init_scale=float(loss_scale))
        if isinstance(loss_scale, Mapping):
            return scaler(device, **loss_scale)
        raise TypeError(f'loss_scale must be of type float, dict, or "dynamic", but got {loss_scale!r}')

    @property
    def dtype(self) -> torch.dtype | None:
        """Return the dtype that was given, or None for the default of the device."""
        return self.cast_dtype

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        self.loss_scaler.scale(loss).backward(**kwargs)
        self._inner_count += 1

    def step(self, **kwargs: Any) -> None:
        if self.clip_grad_kwargs:
            self.loss_scaler.unscale_(self.optimizer)
            self._clip_grad()
        self.loss_scaler.step(self.optimizer, **kwargs)
        self.loss_scaler.update(self._scale_update_param)

    @contextmanager
    def optim_context(self, model: torch.nn.Module) -> Iterator[None]:
        with super().optim_context(model), autocast(dtype=self.cast_dtype):
            yield

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "loss_scaler": self.loss_scaler.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        state = dict(state_dict)
        scaler = state.pop("loss_scaler", None)
        if scaler:
            self.loss_scaler.load_state_dict(scaler)
        super().load_state_dict(state)


class ApexOptimWrapper(OptimWrapper):
    """Not supported: the error says what to use instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise OutOfScope("apex is no longer maintained; use type='AmpOptimWrapper', which takes the same loss_scale")
