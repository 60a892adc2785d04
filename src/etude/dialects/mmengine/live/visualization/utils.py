"""Small conversions and checks for drawing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from etude.dialects.mmengine.live.visualization.drawing import _array, _colours, _heat

Types = type | tuple[type, ...]


def tensor2ndarray(value: Any) -> Any:
    """A tensor as an array; anything else as it is."""
    return _array(value) if isinstance(value, torch.Tensor) else value


def value2list(value: Any, valid_type: Types, expand_dim: int) -> Any:
    """A single value of ``valid_type`` repeated in a list."""
    return [value] * expand_dim if isinstance(value, valid_type) else value


def check_type(name: str, value: Any, valid_type: Types) -> None:
    if not isinstance(value, valid_type):
        raise TypeError(f"`{name}` should be {valid_type} but got {type(value)}")


def check_length(name: str, value: Any, valid_length: int) -> None:
    """A list must have an item for everything that is drawn."""
    if isinstance(value, list) and len(value) < valid_length:
        raise AssertionError(
            f"The length of {name} must equal with or greater than {valid_length}, but got {len(value)}"
        )


def check_type_and_length(name: str, value: Any, valid_type: Types, valid_length: int) -> None:
    check_type(name, value, valid_type)
    check_length(name, value, valid_length)


def color_val_matplotlib(colors: Any) -> Any:
    """Colours of 0 to 255 as matplotlib wants them; names stay."""
    return _colours(colors)


def color_str2rgb(color: str) -> tuple[int, ...]:
    """A colour's name as three numbers of 0 to 255."""
    from matplotlib.colors import to_rgb

    return tuple(int(channel * 255) for channel in to_rgb(color))


def convert_overlay_heatmap(feat_map: Any, img: np.ndarray | None = None, alpha: float = 0.5) -> np.ndarray:
    """A map of one channel in colours, over ``img`` if there is one."""
    assert feat_map.ndim == 2 or (feat_map.ndim == 3 and feat_map.shape[0] in (1, 3)), "a map has one or three channels"
    tensor = torch.as_tensor(feat_map).float()
    return _heat(tensor if tensor.ndim == 2 else tensor.mean(0), img, alpha)


def img_from_canvas(canvas: Any) -> np.ndarray:
    """What was drawn, as an RGB image."""
    data, (width, height) = canvas.print_to_buffer()
    return np.frombuffer(data, dtype="uint8").reshape(height, width, 4)[..., :3].copy()
