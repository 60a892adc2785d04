"""Finds out whether torchvision's compiled ops work here, and computes gradients of functions without compiled ones."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


@functools.cache
def torchvision_ops() -> Any:
    """Return ``torchvision.ops`` if it works here, else None; one warning says why an installed one does not."""
    try:
        found = importlib.import_module("torchvision.ops")
        # A torchvision that was built for another torch can be imported, and fails only when an op is called.
        found.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except ModuleNotFoundError:
        return None
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        text = (
            f"torchvision was not built for torch {torch.__version__} ({error}): mmcv.ops are computed in plain torch"
        )
        warnings.warn(text, stacklevel=2)
        return None
    return found


def gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad_output: Tensor) -> tuple[Tensor, ...]:
    """Return the gradient of ``function(*inputs)`` for each input, zeros where it does not depend on one."""
    with torch.enable_grad():
        leaves = [one.detach().requires_grad_() for one in inputs]
        out = function(*leaves)
        found = torch.autograd.grad(out, leaves, grad_output.to(out.dtype), allow_unused=True)
    return tuple(torch.zeros_like(leaf) if one is None else one for leaf, one in zip(leaves, found, strict=True))


def sample(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the values of ``images`` (n, c, h, w) at points (n, …) in pixels, as (n, c, …); beyond the border is 0."""
    height, width = images.shape[2:]
    shape = rows.shape[1:]
    at = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], dim=-1).flatten(1, -2)
    found = torch.nn.functional.grid_sample(images, at[:, None].to(images.dtype), align_corners=False)
    return found.reshape(*images.shape[:2], *shape)
