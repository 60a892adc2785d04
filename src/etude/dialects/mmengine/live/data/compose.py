"""A pipeline: transforms one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from etude.dialects.mmengine.live.registry import TRANSFORMS


class Compose:
    """Applies ``transforms`` (callables, or configs of TRANSFORMS) in order; a None ends it."""

    def __init__(self, transforms: Sequence[dict[str, Any] | Callable[..., Any]] | None) -> None:
        self.transforms: list[Callable[..., Any]] = []
        for transform in transforms or ():
            made = TRANSFORMS.build(transform) if isinstance(transform, dict) else transform
            if not callable(made):
                wanted = (
                    "should be a callable object"
                    if isinstance(transform, dict)
                    else "must be a callable object or dict"
                )
                raise TypeError(f"transform {wanted}, but got {type(made)}")
            self.transforms.append(made)

    def __call__(self, data: dict[str, Any]) -> dict[str, Any] | None:
        for transform in self.transforms:
            data = transform(data)
            if data is None:
                return None
        return data

    def __repr__(self) -> str:
        lines = "".join(f"\n    {transform}" for transform in self.transforms)
        return f"{type(self).__name__}({lines}\n)"
