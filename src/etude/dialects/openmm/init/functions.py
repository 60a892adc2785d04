"""Functions that initialise ``weight`` and ``bias`` of one module, if it has them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn


def constant_init(module: nn.Module, val: float, bias: float = 0) -> None:
    if _weight(module) is not None:
        nn.init.constant_(_weight(module), val)  # type: ignore[arg-type]
    _set_bias(module, bias)


def xavier_init(module: nn.Module, gain: float = 1, bias: float = 0, distribution: str = "normal") -> None:
    fill = _choose(distribution, uniform=nn.init.xavier_uniform_, normal=nn.init.xavier_normal_)
    weight = _weight(module)
    if weight is not None:
        fill(weight, gain=gain)
    _set_bias(module, bias)


def normal_init(module: nn.Module, mean: float = 0, std: float = 1, bias: float = 0) -> None:
    weight = _weight(module)
    if weight is not None:
        nn.init.normal_(weight, mean, std)
    _set_bias(module, bias)


def trunc_normal_init(
    module: nn.Module, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, bias: float = 0
) -> None:
    weight = _weight(module)
    if weight is not None:
        trunc_normal_(weight, mean, std, a, b)
    _set_bias(module, bias)


def uniform_init(module: nn.Module, a: float = 0, b: float = 1, bias: float = 0) -> None:
    weight = _weight(module)
    if weight is not None:
        nn.init.uniform_(weight, a, b)
    _set_bias(module, bias)


def kaiming_init(
    module: nn.Module,
    a: float = 0,
    mode: str = "fan_out",
    nonlinearity: str = "relu",
    bias: float = 0,
    distribution: str = "normal",
) -> None:
    fill = _choose(distribution, uniform=nn.init.kaiming_uniform_, normal=nn.init.kaiming_normal_)
    weight = _weight(module)
    if weight is not None:
        fill(weight, a=a, mode=mode, nonlinearity=nonlinearity)
    _set_bias(module, bias)


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
        tensor.uniform_(2 * low - 1, 2 * high - 1)
        tensor.erfinv_()
        tensor.mul_(std * math.sqrt(2.0)).add_(mean)
        return tensor.clamp_(min=a, max=b)


def _weight(module: nn.Module) -> Tensor | None:
    weight: Tensor | None = getattr(module, "weight", None)
    return weight


def _set_bias(module: nn.Module, bias: float) -> None:
    if getattr(module, "bias", None) is not None:
        nn.init.constant_(module.bias, bias)  # type: ignore[arg-type]


def _choose(
    distribution: str, *, uniform: Callable[..., Tensor], normal: Callable[..., Tensor]
) -> Callable[..., Tensor]:
    if distribution not in ("uniform", "normal"):
        raise AssertionError(f"distribution is 'uniform' or 'normal', not {distribution!r}")
    return uniform if distribution == "uniform" else normal
