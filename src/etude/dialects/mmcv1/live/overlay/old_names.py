"""Names of numpy and torch that projects of mmcv 1.x use, and that later releases of both dropped."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from torch.utils.data import Sampler


def restore(module: ModuleType) -> None:
    """Put the names back. ``mmcv.ops`` is the ``module`` that every project in need of them imports."""
    for kind in (int, float, bool, object):
        vars(np).setdefault(kind.__name__, kind)
    if "__init__" not in vars(Sampler):
        setattr(Sampler, "__init__", _init_with_dataset)  # noqa: B010  mypy refuses the assignment


def _init_with_dataset(self: Any, *args: Any, **kwargs: Any) -> None:
    """Take the dataset, as ``Sampler`` did, unless another base of the class has a use for the arguments."""
    following = super(Sampler, self).__init__
    if getattr(following, "__qualname__", "") == "object.__init__":
        following()
    else:
        following(*args, **kwargs)
