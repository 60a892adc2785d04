"""Lets ``mmcv.ops`` of an installed mmcv run on compiled code, or on :mod:`etude_openmm.shared.ops`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from torch import Tensor

from etude_openmm.shared.ops.losses import sigmoid_focal_loss, softmax_focal_loss
from etude_openmm.shared.ops.regions import roi_align


def load_ext(name: str, funcs: Sequence[str]) -> Any:
    """Return mmcv's compiled functions, or their replacement."""
    return importlib.import_module(f"mmcv.{name}")


def check_ops_exist() -> bool:
    """Return whether compiled ops or Étude's can be called."""
    return True


def normalize(tensor: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Normalise images per channel, as torchvision's function of this name does."""
    at, by = (tensor.new_tensor(values).view(-1, 1, 1) for values in (mean, std))
    return (tensor - at) / by


def replace_roi_align(module: ModuleType) -> None:
    """Replace the function in ``mmcv.ops.roi_align`` by one whose gradient torch computes, without compiled code."""
    if hasattr(load_ext("_ext", ()), "is_plain"):
        vars(module)["roi_align"] = roi_align


def replace_focal_loss(module: ModuleType) -> None:
    """Replace the functions in ``mmcv.ops.focal_loss`` by ones whose gradient torch computes."""
    if hasattr(load_ext("_ext", ()), "is_plain"):
        vars(module)["sigmoid_focal_loss"] = sigmoid_focal_loss
        vars(module)["softmax_focal_loss"] = softmax_focal_loss
