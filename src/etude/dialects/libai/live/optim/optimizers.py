"""OneFlow's optimizers by their arguments, on torch's: what has no meaning here is taken and left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from etude.dialects.libai.live.optim.build import clip_groups
from etude.errors import ConfigError


def _adapted(base: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    class Adapted(base):  # type: ignore[misc,valid-type]
        def __init__(
            self,
            params: Any,
            *args: Any,
            do_bias_correction: bool = True,
            contiguous_params: bool = False,
            fused: bool = False,
            **kwargs: Any,
        ) -> None:
            if not do_bias_correction:
                raise ConfigError(f"do_bias_correction=False: torch's {base.__name__} always corrects its bias")
            if "betas" in kwargs:
                kwargs["betas"] = tuple(kwargs["betas"])
            super().__init__(params, *args, **kwargs)

        def clip_grad(self, error_if_nonfinite: bool = False) -> None:
            """Each group by its own ``clip_grad_max_norm`` and ``clip_grad_norm_type``."""
            clip_groups(self, error_if_nonfinite=error_if_nonfinite)

        def step(self, closure: Callable[[], float] | None = None) -> Any:
            return super().step(closure)

    Adapted.__name__ = Adapted.__qualname__ = base.__name__
    Adapted.__doc__ = f"``oneflow.optim.{base.__name__}`` on torch."
    return Adapted


SGD = _adapted(torch.optim.SGD)
Adam = _adapted(torch.optim.Adam)
AdamW = _adapted(torch.optim.AdamW)
Adagrad = _adapted(torch.optim.Adagrad)
RMSprop = _adapted(torch.optim.RMSprop)
