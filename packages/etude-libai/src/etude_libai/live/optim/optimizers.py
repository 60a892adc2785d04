"""OneFlow's optimizers on top of torch's. Arguments without a meaning in torch are accepted and ignored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from etude.errors import ConfigError
from etude.optim import lamb
from etude_libai.live.oneflow.tensors import is_global
from etude_libai.live.optim.build import clip_groups


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

        def clip_grad(self, error_if_nonfinite: bool = False) -> Any:
            """Clip each group by its ``clip_grad_max_norm`` and ``clip_grad_norm_type``."""
            return clip_groups(self, error_if_nonfinite=error_if_nonfinite)

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


class LAMB(_adapted(lamb.LAMB)):  # type: ignore[misc]
    """``oneflow.optim.LAMB``: Étude's LAMB without clipping of the global gradient norm."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        adam_w_mode: bool = True,
        do_bias_correction: bool = True,
        amsgrad: bool = False,
        *,
        contiguous_params: bool = False,
        fused: bool = False,
    ) -> None:
        if amsgrad or not adam_w_mode:
            raise ConfigError("LAMB: adam_w_mode=False and amsgrad=True have no counterpart here")
        super().__init__(
            params,
            lr,
            betas=tuple(betas),
            eps=eps,
            weight_decay=weight_decay,
            bias_correction=do_bias_correction,
            max_grad_norm=None,
            always_adapt=True,
        )

    def _fused_way(self, group: Any, params: Any, grads: Any, divisor: Any) -> None:
        """Step; split parameters one by one, as stages have their own ranks and no kernel takes them."""
        if not is_global(params[0]):
            super()._fused_way(group, params, grads, divisor)
            return
        for parameter, grad in zip(params, grads, strict=True):
            self._foreach_way(group, [parameter], [grad], divisor)
