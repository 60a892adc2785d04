"""Keeps ``torch._dynamo`` out of runs that compile nothing: importing it takes as long as importing torch.

torch's optimizers import it when they are made and at every step, only to exclude themselves from its graphs. As long
as nothing else has imported it, there are no graphs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch._compile
from torch.optim import Optimizer, optimizer

#: Where torch keeps the function that a method of this kind calls; it imports ``torch._dynamo`` to make one.
_PLACE = "__dynamo_disable"


def spare_dynamo(kind: Any) -> None:
    """Let optimizers of the class ``kind`` run without ``torch._dynamo`` until something else imports it."""
    if "torch._dynamo" in sys.modules or not isinstance(kind, type) or not issubclass(kind, Optimizer):
        return
    for method in vars(Optimizer).values():
        if _comes_from(method, torch._compile) and not hasattr(method.__wrapped__, _PLACE):
            setattr(method.__wrapped__, _PLACE, _without_disabling(method))
    if _comes_from(kind.step, optimizer) and kind.step.__code__.co_name == "_use_grad":
        kind.step = _without_graph_breaks(kind.step)  # type: ignore[method-assign]


def _comes_from(method: Any, module: Any) -> bool:
    """Return whether ``method`` is a wrapper that ``module`` has put around another function."""
    code = getattr(method, "__code__", None)
    return hasattr(method, "__wrapped__") and code is not None and code.co_filename == module.__file__


def _without_disabling(method: Any) -> Callable[..., Any]:
    plain = method.__wrapped__

    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:  # checked at each call: a hook may compile something later
            return plain(*args, **kwargs)
        if getattr(plain, _PLACE, None) is call:
            delattr(plain, _PLACE)
        return method(*args, **kwargs)

    return call


def _without_graph_breaks(step: Any) -> Callable[..., Any]:
    plain = step.__wrapped__

    @wraps(plain)
    def call(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" in sys.modules:
            return step(self, *args, **kwargs)
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return plain(self, *args, **kwargs)

    return call
