"""Batch-norm statistics as true averages over many batches, in place of the moving ones."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import nn

_BN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def get_bn_modules(model: nn.Module) -> list[nn.Module]:
    """The batch-norm layers that are in training mode and keep statistics."""
    return [
        module
        for module in model.modules()
        if isinstance(module, _BN) and module.training and module.track_running_stats
    ]


@torch.no_grad()
def update_bn_stats(model: nn.Module, data_loader: Iterable[Any], num_iters: int = 200, progress: Any = None) -> None:
    """Replace running statistics by their means over ``num_iters`` batches; only the forward pass is run."""
    layers: list[Any] = get_bn_modules(model)
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 1.0  # the running statistics are then those of the last batch
    means = [torch.zeros_like(layer.running_mean) for layer in layers]
    variances = [torch.zeros_like(layer.running_var) for layer in layers]
    seen = 0
    try:
        for inputs in islice(data_loader, num_iters):
            seen += 1
            model(inputs)
            for index, layer in enumerate(layers):
                means[index] += (layer.running_mean - means[index]) / seen
                variances[index] += (layer.running_var - variances[index]) / seen
        assert seen == num_iters, (
            f"update_bn_stats is meant to run for {num_iters} iterations, "
            f"but the dataloader stops at {seen} iterations."
        )
    finally:
        for index, layer in enumerate(layers):
            layer.momentum = momenta[index]
    for index, layer in enumerate(layers):
        layer.running_mean.copy_(means[index])
        layer.running_var.copy_(variances[index])
