"""What export scripts of projects import from ``mmcv.onnx``."""

from __future__ import annotations


def register_extra_symbolics(opset: int = 11) -> None:
    """Leave torch as it is: its exporter has had these operators itself since torch 1.8, so there is nothing to add."""


def is_custom_op_loaded() -> bool:
    """Return whether mmcv's compiled operators for inference engines are loaded. Étude has none."""
    return False
