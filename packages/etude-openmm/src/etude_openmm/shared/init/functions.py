"""Functions that initialise ``weight`` and ``bias`` of one module, if it has them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def constant_init(module: nn.Module, val: float, bias: float = 0) -> None:
    _fill(module, bias, nn.init.constant_, val)


def xavier_init(module: nn.Module, gain: float = 1, bias: float = 0, distribution: str = "normal") -> None:
    fill = _choose(distribution, uniform=nn.init.xavier_uniform_, normal=nn.init.xavier_normal_)
    _fill(module, bias, fill, gain=gain)


def normal_init(module: nn.Module, mean: float = 0, std: float = 1, bias: float = 0) -> None:
    _fill(module, bias, nn.init.normal_, mean, std)


def trunc_normal_init(
    module: nn.Module, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, bias: float = 0
) -> None:
    _fill(module, bias, trunc_normal_, mean, std, a, b)


def uniform_init(module: nn.Module, a: float = 0, b: float = 1, bias: float = 0) -> None:
    _fill(module, bias, nn.init.uniform_, a, b)


def kaiming_init(
    module: nn.Module,
    a: float = 0,
    mode: str = "fan_out",
    nonlinearity: str = "relu",
    bias: float = 0,
    distribution: str = "normal",
) -> None:
    fill = _choose(distribution, uniform=nn.init.kaiming_uniform_, normal=nn.init.kaiming_normal_)
    _fill(module, bias, fill, a=a, mode=mode, nonlinearity=nonlinearity)


def caffe2_xavier_init(module: nn.Module, bias: float = 0) -> None:
    """Initialise as "XavierFill" of Caffe2 does, which is Kaiming initialisation with a uniform distribution."""
    kaiming_init(module, a=1, mode="fan_in", nonlinearity="leaky_relu", bias=bias, distribution="uniform")


def bias_init_with_prob(prior_prob: float) -> float:
    """Return the bias for which a sigmoid returns ``prior_prob``."""
    return -math.log((1 - prior_prob) / prior_prob)


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fill a tensor from a normal distribution truncated to [a, b] (absolute bounds), by inverting the CDF."""

    def below(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            f"mean {mean} is more than 2 std from [{a}, {b}]: the values are not distributed as expected", stacklevel=2
        )
    low, high = below((a - mean) / std), below((b - mean) / std)
    with torch.no_grad():
        # Draws and order of operations are those of torch's trunc_normal_, so that the bits are.
        tensor.uniform_(2 * low - 1, 2 * high - 1)
        tensor.erfinv_()
        tensor.mul_(std * math.sqrt(2.0)).add_(mean)
        return tensor.clamp_(min=a, max=b)


def _fill(module: nn.Module, bias: float, fill: Callable[..., Tensor], *args: Any, **settings: Any) -> None:
    """Call ``fill`` with the weight, and set the bias, as far as the module has them."""
    if getattr(module, "weight", None) is not None:
        fill(module.weight, *args, **settings)
    if getattr(module, "bias", None) is not None:
        nn.init.constant_(module.bias, bias)  # type: ignore[arg-type]


def _choose(
    distribution: str, *, uniform: Callable[..., Tensor], normal: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    if distribution not in ("uniform", "normal"):
        raise AssertionError(f"distribution is 'uniform' or 'normal', not {distribution!r}")
    return uniform if distribution == "uniform" else normal
