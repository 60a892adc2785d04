"""Clips gradients before an update: by their norm, by their values, or by the size of the weights.

A clipping is any callable object that takes :class:`Gradients` and changes them in place. Another mode is a class here
and its name in ``CLIPPINGS`` of ``builtins.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etude.dist.layout import norm as norms
from etude.dist.layout.mesh import Mesh
from etude.errors import ConfigError


class Gradients:
    """The gradients of some parameters, which a clipping measures and changes.

    ``groups`` are those of the optimizers. With ``peeks`` (tensors that Python can read without waiting for a device)
    gradients that need no scaling are not written at all. ``mesh`` is set where ranks hold pieces of one model.
    """

    mesh: Mesh | None = None

    def __init__(self, groups: Iterable[Sequence[Tensor]], *, peeks: bool = False) -> None:
        self.groups = [list(group) for group in groups]
        self.params = [param for group in self.groups for param in group]
        self._peeks = peeks
        kinds = {(param.device, param.dtype) for param in self.params}
        self._alike = len(kinds) == 1 and all(type(param) in (Tensor, torch.nn.Parameter) for param in self.params)
        self._parts: list[Gradients] = []

    def by_group(self) -> list[Gradients]:
        """Return the gradients of each parameter group by itself."""
        if not self._parts:
            self._parts = [Gradients([group], peeks=self._peeks) for group in self.groups]
        for part in self._parts:
            part.mesh = self.mesh
        return self._parts

    def norm(self) -> Tensor:
        """Return the norm of all gradients together."""
        grads = [param.grad for param in self.params if param.grad is not None]
        return torch.nn.utils.get_total_norm(grads) if self.mesh is None else norms.total_norm(grads, self.mesh)

    def limit(self, most: float) -> Tensor:
        """Scale the gradients down to a norm of ``most``, and return the norm that they had.

        The results are bitwise those of ``torch.nn.utils.clip_grad_norm_``. That function groups the gradients by
        device and type, twice a step; here the parameters are looked at once.
        """
        if self.mesh is not None:
            return norms.clip(self.params, most, self.mesh)
        grads = [param.grad for param in self.params if param.grad is not None]
        if not self._alike or not grads:  # shards, several devices or types
            norm: Tensor = torch.nn.utils.clip_grad_norm_(self.params, most)
            return norm
        with torch.no_grad():
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
            if not (self._peeks and _is_below(norm, most)):
                torch._foreach_mul_(grads, torch.clamp(most / (norm + 1e-6), max=1.0))
        return norm


def _is_below(norm: Tensor, most: float) -> bool:
    """Return whether torch would scale by exactly 1. Close to the limit, where rounding decides, return False."""
    return norm.dtype != torch.bfloat16 and float(norm.numpy()) < most * 0.999 - 1e-6


class Norm:
    """Scales gradients down to a norm of ``max``: all of them together, or ``per: group`` each parameter group."""

    def __init__(self, max: float, per: str = "run") -> None:
        self.max, self.per = _positive("Norm", "max", max), per
        if per not in ("run", "group"):
            raise ConfigError(f"Norm: per is {per!r}", hint="write per: run, or per: group")
        #: Whether a call returns the norm of all gradients.
        self.measures = per == "run"

    def __call__(self, gradients: Gradients) -> Tensor | None:
        if self.measures:
            return gradients.limit(self.max)
        for part in gradients.by_group():
            part.limit(self.max)
        return None


class Value:
    """Limits every single gradient to the range from ``-max`` to ``max``."""

    def __init__(self, max: float) -> None:
        self.max = _positive("Value", "max", max)

    def __call__(self, gradients: Gradients) -> None:
        torch.nn.utils.clip_grad_value_(gradients.params, self.max)


class AGC:
    """Adaptive gradient clipping: a gradient's norm stays below ``factor`` times the norm of its weights.

    Each row of a weight is compared by itself (Brock et al.: *High-Performance Large-Scale Image Recognition Without
    Normalization*, 2021). Weights below ``eps`` count as ``eps``, so that those that begin at zero can grow.
    """

    #: Rows may be split over ranks, of which none then knows the norm.
    needs_whole = True

    def __init__(self, factor: float = 0.01, eps: float = 1e-3) -> None:
        self.factor, self.eps = _positive("AGC", "factor", factor), _positive("AGC", "eps", eps)

    @torch.no_grad()
    def __call__(self, gradients: Gradients) -> None:
        for param in gradients.params:
            if param.grad is not None:
                most = _norm_of_rows(param).clamp(min=self.eps) * self.factor
                param.grad.mul_((most / _norm_of_rows(param.grad).clamp(min=1e-6)).clamp(max=1.0))


def _norm_of_rows(tensor: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(tensor, dim=tuple(range(1, tensor.ndim)) or None, keepdim=True)
    return norm


def _positive(owner: str, name: str, value: float) -> float:
    if not value > 0:
        raise ConfigError(f"{owner}: {name} must be more than zero, not {value}")
    return float(value)


def describe_wrong(clippings: Sequence[Any], sizes: Mapping[str, int]) -> str:
    """Return why the clippings do not work on a mesh of these sizes; empty if they do."""
    split = [axis for axis in ("tensor", "shard", "pipeline") if sizes[axis] > 1]
    found = next((type(one).__name__ for one in clippings if getattr(one, "needs_whole", False)), "")
    return f"{found} needs whole weights, and this run splits them ({split[0]})" if found and split else ""
