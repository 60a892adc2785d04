"""Draws on images with the methods of the installed mmengine's ``Visualizer``, as drawing is no part of training.

Étude's visualizer imports them when one is first called, so that runs that only write scalars need neither mmengine nor
OpenCV nor matplotlib.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from etude.dialects import ownership
from etude.dialects.imports import MissingOriginal
from etude_openmm.shared.registries.root import VISUALIZERS

_METHODS = (
    "draw_bboxes", "draw_binary_masks", "draw_circles", "draw_lines", "draw_points", "draw_polygons", "draw_texts",
    "get_image", "set_image", "show", "_init_manager", "_initialize_fig", "_is_posion_valid",
)  # fmt: skip
#: Attributes that the original's ``__init__`` sets.
_FIGURE = ("fig_save_canvas", "fig_save", "ax_save")


class Drawing:
    """Draws with ``set_image``, then ``draw_*``, then ``get_image``, which returns H × W × 3 in RGB."""

    fig_save_cfg: dict[str, Any]
    _image: Any = None

    def __getattr__(self, name: str) -> Any:
        """Make the figure when it is first drawn on."""
        if name == "dpi":
            return self.fig_save.get_dpi()
        if name not in _FIGURE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        made = _original()._initialize_fig(self, self.fig_save_cfg)
        vars(self).update(zip(_FIGURE, made, strict=True))
        return vars(self)[name]

    @staticmethod
    def draw_featmap(*args: Any, **kwargs: Any) -> Any:
        """Return a feature map as an image."""
        return _original().draw_featmap(*args, **kwargs)


def _original_method(name: str) -> Callable[..., Any]:
    def method(self: Drawing, *args: Any, **kwargs: Any) -> Any:
        return getattr(_original(), name)(self, *args, **kwargs)

    method.__name__ = name
    return method


for _name in _METHODS:
    setattr(Drawing, _name, _original_method(_name))


@cache
def _original() -> Any:
    """Return the class ``Visualizer`` of the mmengine on disk."""
    folder = ownership.original("mmengine")
    if folder is None:
        text = "drawing on images is no part of training and comes from mmengine itself, which is not installed"
        raise MissingOriginal(f"{text}: pip install mmengine", name="mmengine")
    name = "mmengine.visualization._visualizer_on_disk"
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, "visualization", "visualizer.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    ours = VISUALIZERS._module_dict.pop("Visualizer", None)  # the original's file registers a class of the same name
    try:
        spec.loader.exec_module(module)
    finally:
        VISUALIZERS._module_dict["Visualizer"] = ours
    sys.modules[name] = module
    return module.Visualizer
