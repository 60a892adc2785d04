"""mmcv's decorators for half precision, ``auto_fp16`` and ``force_fp32``.

They act on methods of modules with ``fp16_enabled``, also on the CPU. The fp16 hooks set that flag only with CUDA.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from inspect import getfullargspec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Method = Callable[..., Any]


def cast_tensor_type(inputs: Any, src_type: torch.dtype, dst_type: torch.dtype) -> Any:
    """Return ``inputs`` with every tensor of ``src_type`` inside cast to ``dst_type``."""
    if isinstance(inputs, nn.Module | str | np.ndarray):
        return inputs
    if isinstance(inputs, Tensor):
        return inputs.to(dst_type) if inputs.dtype == src_type else inputs
    if isinstance(inputs, Mapping):
        return type(inputs)({k: cast_tensor_type(v, src_type, dst_type) for k, v in inputs.items()})  # type: ignore[call-arg]
    if isinstance(inputs, Iterable):
        return type(inputs)(cast_tensor_type(item, src_type, dst_type) for item in inputs)  # type: ignore[call-arg]
    return inputs


def auto_fp16(
    apply_to: Iterable[str] | None = None, out_fp32: bool = False, supported_types: tuple[type, ...] = (nn.Module,)
) -> Callable[[Method], Method]:
    """Run a method of a module with ``fp16_enabled`` in half precision. ``apply_to`` names the arguments to cast."""
    return _in_precision(apply_to, torch.float, torch.half, out_fp32, supported_types, "auto_fp16")


def force_fp32(apply_to: Iterable[str] | None = None, out_fp16: bool = False) -> Callable[[Method], Method]:
    """Run a method of a module with ``fp16_enabled`` in single precision."""
    return _in_precision(apply_to, torch.half, torch.float, out_fp16, (nn.Module,), "force_fp32")


def _in_precision(
    apply_to: Iterable[str] | None,
    source: torch.dtype,
    target: torch.dtype,
    back: bool,
    supported: tuple[type, ...],
    name: str,
) -> Callable[[Method], Method]:
    """Return a decorator that casts arguments to ``target``, and with ``back`` the results to ``source``."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not _wants_half(args, supported, name):
                return method(*args, **kwargs)
            args, kwargs = _cast_named(method, args, kwargs, apply_to, source, target)
            with torch.autocast(_device(), dtype=torch.half, enabled=target is torch.half):
                output = method(*args, **kwargs)
            return cast_tensor_type(output, target, source) if back else output

        return call

    return decorate


def wrap_fp16_model(model: nn.Module) -> None:
    """Turn half precision on in every module that has the flag ``fp16_enabled``."""
    for part in model.modules():
        if hasattr(part, "fp16_enabled"):
            setattr(part, "fp16_enabled", True)  # noqa: B010


def _wants_half(args: tuple[Any, ...], supported: tuple[type, ...], name: str) -> bool:
    if not isinstance(args[0], supported):
        raise TypeError(f"@{name} can only be used to decorate methods of {', '.join(t.__name__ for t in supported)}")
    return bool(getattr(args[0], "fp16_enabled", False))


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _cast_named(
    method: Method,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    apply_to: Iterable[str] | None,
    source: torch.dtype,
    target: torch.dtype,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    names = getfullargspec(method).args
    chosen = set(names if apply_to is None else apply_to)
    cast = [
        cast_tensor_type(arg, source, target) if i and i < len(names) and names[i] in chosen else arg
        for i, arg in enumerate(args)
    ]
    return tuple(cast), {k: cast_tensor_type(v, source, target) if k in chosen else v for k, v in kwargs.items()}
