"""Refuses a compiled op that is not there, when it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etude.errors import UserError


class MissingOp(UserError, NotImplementedError):
    """A compiled op was called that is not available."""


def missing(name: str) -> Callable[..., Any]:
    """Return a function in place of the op ``name``, which raises the error that names it."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise MissingOp(
            f"the op {name!r} of mmcv.ops needs compiled code, and neither mmcv-lite nor Étude has it; "
            "install an mmcv with ops (`pip install mmcv==1.7.2`, or mmcv 2.x, built for your torch)"
        )

    refuse.__name__ = name
    return refuse
