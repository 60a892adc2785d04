"""``build_optim_wrapper``: the constructor that a config names, applied to a model."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from etude.dialects.mmengine.live.registry import OPTIM_WRAPPER_CONSTRUCTORS


def build_optim_wrapper(model: nn.Module, cfg: dict[str, Any]) -> Any:
    """The optim wrapper of ``cfg``: ``constructor`` and ``paramwise_cfg`` make the groups, the rest the wrapper."""
    wrapper = copy.deepcopy(cfg)
    constructor = wrapper.pop("constructor", "DefaultOptimWrapperConstructor")
    paramwise = wrapper.pop("paramwise_cfg", None)
    made = OPTIM_WRAPPER_CONSTRUCTORS.build(
        {"type": constructor, "optim_wrapper_cfg": wrapper, "paramwise_cfg": paramwise}
    )
    return made(model)


#: Names of torch's optimizers that a config may use.
TORCH_OPTIMIZERS: list[str] = [
    "TorchAdafactor" if name == "Adafactor" else name
    for name, found in vars(torch.optim).items()
    if isinstance(found, type) and issubclass(found, torch.optim.Optimizer)
]

#: Optimizers of other packages have no short names here: a config names them by their path (``type="pkg.Optimizer"``).
NPU_OPTIMIZERS: list[str] = []
DADAPTATION_OPTIMIZERS: list[str] = []
LION_OPTIMIZERS: list[str] = []
SOPHIA_OPTIMIZERS: list[str] = []
BITSANDBYTES_OPTIMIZERS: list[str] = []
TRANSFORMERS_OPTIMIZERS: list[str] = []
